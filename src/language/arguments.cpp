// A program's arguments against its declarations: names to slots, and the check that every engine makes first.
#include <fmt/format.h>

#include <array>
#include <limits>
#include <optional>

#include "coda/engine.hpp"
#include "diagnostics.hpp"
#include "internal.hpp"

namespace coda {
namespace {

using language::spell;

constexpr std::int64_t max_extent = std::numeric_limits<std::int32_t>::max();  // row and col are 32-bit integers

/// Binds the extents of a program's arguments, one after the other.
class ArgumentChecker {
 public:
  ArgumentChecker(const Program& p, Slots slots) : p_(p), given_(slots), slots_(p.slots()) {}

  Extents run() {
    if (given_.size() != slots_.size()) {
      fail(ErrorKind::shape,
           fmt::format("{} arguments: expected {}, in this order: {}", given_.size(), slots_.size(), names()));
    }
    for (std::size_t i = 0; i < slots_.size(); ++i)
      if (!absent(i)) check_one(slots_[i], given_[i]);
    // Operands bind M and N too, but A and B come first in the order of slots, so that they are what others must fit.
    require_divisible();
    return {m_.value, n_.value, k_.value};
  }

 private:
  /// An extent that the arguments settle: its value, and the slot that settled it. Nothing is spelled out before
  /// there is a fault to report: engines check on every call.
  struct Bound {
    std::int64_t value = -1;
    std::size_t slot = 0;
  };

  [[noreturn]] void fail(ErrorKind kind, std::string_view message) const { language::fail(kind, {}, p_.name, message); }

  std::string names() const {
    std::string all;
    for (const Slot& s : slots_) all += fmt::format("{}{}", all.empty() ? "" : ", ", s.name);
    return all;
  }

  static std::string_view role(const Slot& s) {
    return s.role == Slot::Role::output ? "output" : s.role == Slot::Role::operand ? "operand" : "matrix";
  }

  static std::string declared(const Slot& s) {
    const std::string extents = s.role == Slot::Role::a   ? "[M, K]"
                                : s.role == Slot::Role::b ? "[N, K]"
                                                          : spell(*s.shape);
    return fmt::format("{}{}", name_of(s.dtype), extents);
  }

  /// An output that isn't wanted; anything else that isn't given is refused.
  bool absent(std::size_t i) const {
    const Tensor& t = given_[i];
    if (t.data != nullptr || t.rank != 0) return false;
    const Slot& s = slots_[i];
    if (s.role == Slot::Role::output) return true;
    fail(ErrorKind::shape,
         fmt::format("{} '{}' isn't given: expected {}; only outputs may be left out", role(s), s.name, declared(s)));
  }

  /// Whether two elements may have one place: a stride is within the reach of the dimensions of smaller stride.
  static bool overlaps(const Tensor& t) {
    // At most four dimensions: each time the one of the smallest stride that is left.
    std::array<bool, Tensor::max_rank> done{};
    std::int64_t reach = 0;
    for (;;) {
      std::size_t next = done.size();
      for (std::size_t d = 0; d < static_cast<std::size_t>(t.rank); ++d)
        if (!done[d] && t.shape[d] > 1 && (next == done.size() || t.stride[d] < t.stride[next])) next = d;
      if (next == done.size()) return false;
      if (t.stride[next] <= reach) return true;
      reach += t.stride[next] * (t.shape[next] - 1);
      done[next] = true;
    }
  }

  void check_one(const Slot& s, const Tensor& t) {
    const auto refuse = [&](ErrorKind kind, std::string_view message) {
      fail(kind, fmt::format("{} '{}', declared {}: {}", role(s), s.name, declared(s), message));
    };
    if (t.rank < 0 || t.rank > Tensor::max_rank) refuse(ErrorKind::shape, fmt::format("found the rank {}", t.rank));
    if (t.dtype != s.dtype)
      refuse(ErrorKind::dtype,
             fmt::format("expected the element type {}, found {}; convert the tensor, or declare {} in the program",
                         name_of(s.dtype), describe(t), name_of(t.dtype)));
    const std::size_t rank = s.shape ? s.shape->extents.size() : 2;
    if (static_cast<std::size_t>(t.rank) != rank)
      refuse(ErrorKind::shape, fmt::format("expected {} extent{}, found {}", rank, rank == 1 ? "" : "s", describe(t)));

    std::int64_t elements = 1, last = 0;
    bool overflow = false, empty = false;
    for (std::size_t d = 0; d < rank; ++d) {
      const std::int64_t extent = t.shape[d], stride = t.stride[d];
      if (extent < 0) refuse(ErrorKind::shape, fmt::format("extent {} is negative, in {}", extent, describe(t)));
      if (stride < 0)
        refuse(ErrorKind::layout, fmt::format("stride {} is negative, in {}; copy the tensor", stride, describe(t)));
      std::int64_t reach = 0;
      empty = empty || extent == 0;
      overflow = overflow || __builtin_mul_overflow(elements, extent, &elements);
      overflow = overflow || __builtin_mul_overflow(extent == 0 ? 0 : extent - 1, stride, &reach);
      overflow = overflow || __builtin_add_overflow(last, reach, &last);
    }
    std::int64_t bytes = 0;
    if (overflow || (!empty && (__builtin_mul_overflow(last, static_cast<std::int64_t>(size_of(t.dtype)), &bytes) ||
                                __builtin_mul_overflow(elements, static_cast<std::int64_t>(size_of(t.dtype)), &bytes))))
      refuse(ErrorKind::shape, fmt::format("{} spans more bytes than 63 bits count", describe(t)));
    if (t.data == nullptr && !empty) refuse(ErrorKind::value, fmt::format("found no data, only {}", describe(t)));

    if (s.role == Slot::Role::output && !empty && overlaps(t))
      refuse(ErrorKind::layout, fmt::format("elements of {} share memory: an output's elements need a place each; copy "
                                            "the tensor",
                                            describe(t)));

    bind_extents(s, t);
    if (rank > 0) check_device(s, t);
  }

  void bind_extents(const Slot& s, const Tensor& t) {
    if (s.role == Slot::Role::a || s.role == Slot::Role::b) {
      bind(s.role == Slot::Role::a ? m_ : n_, s.role == Slot::Role::a ? "M" : "N", s, t, 0, 1, 1);
      bind(k_, "K", s, t, 1, 1, 1);
      return;
    }
    for (std::size_t d = 0; d < s.shape->extents.size(); ++d) {
      const Extent& e = s.shape->extents[d];
      switch (e.kind) {
        case Extent::Kind::m: bind(m_, "M", s, t, d, 1, 1); break;
        case Extent::Kind::n: bind(n_, "N", s, t, d, 1, 1); break;
        case Extent::Kind::half_n: bind(n_, "N", s, t, d, 1, 2); break;
        case Extent::Kind::twice_n: bind(n_, "N", s, t, d, 2, 1); break;
        case Extent::Kind::symbol: bind(symbol(e.symbol), e.symbol, s, t, d, 1, 1); break;
        case Extent::Kind::number:
          if (t.shape[d] != e.number)
            fail(ErrorKind::shape, fmt::format("{} '{}', declared {}: expected {} as extent {}, found {}", role(s),
                                               s.name, declared(s), e.number, d, describe(t)));
          break;
      }
    }
  }

  std::string settled_by(const Bound& b) const {
    return fmt::format("{} '{}' {}", role(slots_[b.slot]), slots_[b.slot].name, describe(given_[b.slot]));
  }

  Bound& symbol(std::string_view name) {
    for (auto& [known, bound] : symbols_)
      if (known == name) return bound;
    return symbols_.emplace_back(name, Bound{}).second;
  }

  /// Extent `d` of `t` is times/over of what `b` stands for.
  void bind(Bound& b, std::string_view name, const Slot& s, const Tensor& t, std::size_t d, std::int64_t times,
            std::int64_t over) {
    const std::int64_t found = t.shape[d];
    if (b.value < 0) {
      // M, N and K come from A and B, so what is bound here is that or a free symbol: one value, one extent.
      if (found > max_extent)
        fail(ErrorKind::shape, fmt::format("{} '{}', declared {}: expected at most {} as {}, found {}", role(s), s.name,
                                           declared(s), max_extent, name, describe(t)));
      b = {found, static_cast<std::size_t>(&s - slots_.data())};
      return;
    }
    if (over == 2 && b.value % 2 != 0)
      fail(ErrorKind::shape, fmt::format("{} '{}', declared {}: expected an even {}, found {} = {} (from {})", role(s),
                                         s.name, declared(s), name, name, b.value, settled_by(b)));
    const std::int64_t expected = b.value * times / over;
    if (found != expected)
      fail(ErrorKind::shape,
           fmt::format("{} '{}', declared {}: expected {} as extent {}, since {} = {} (from {}); "
                       "found {}",
                       role(s), s.name, declared(s), expected, d, name, b.value, settled_by(b), describe(t)));
  }

  void check_device(const Slot& s, const Tensor& t) {
    if (!device_) {
      device_ = t.device;
      return;
    }
    if (*device_ == t.device) return;
    const auto spell_device = [](const Device& d) {
      return d.type == DeviceType::cpu ? std::string("host memory") : fmt::format("CUDA device {}", d.index);
    };
    fail(ErrorKind::layout, fmt::format("{} '{}', declared {}: expected data in {}, where A is, found {}", role(s),
                                        s.name, declared(s), spell_device(*device_), spell_device(t.device)));
  }

  /// What pairings and segments ask of N.
  void require_divisible() const {
    for (std::size_t v = 0; v < p_.nodes.size(); ++v) {
      const Node& n = p_.nodes[v];
      Width width = n.type.width;
      std::int64_t divisor = 0;
      if (n.op == Op::split || n.op == Op::join) {
        if (n.op == Op::split) width = p_.node(n.args[0]).type.width;
        divisor = n.pairing.kind == Pairing::Kind::heads ? n.pairing.head : 2;
      } else if (n.over.kind == Over::Kind::segment) {
        divisor = n.over.segment;
      } else if (width == Width::half) {
        width = Width::full;
        divisor = 2;
      }
      if (divisor == 0) continue;
      if (width == Width::half && n_.value % 2 != 0) divisor = 2, width = Width::full;
      const std::int64_t columns = width == Width::half    ? n_.value / 2
                                   : width == Width::twice ? n_.value * 2
                                                           : n_.value;
      if (columns % divisor == 0) continue;
      fail(ErrorKind::shape, fmt::format("'{}'{}: expected {} divisible by {}, found N = {} (from {})",
                                         spell(p_, static_cast<ValueId>(v)),
                                         n.where.line > 0 ? fmt::format(" (line {})", n.where.line) : "",
                                         width == Width::half    ? "N/2"
                                         : width == Width::twice ? "2N"
                                                                 : "N",
                                         divisor, n_.value, settled_by(n_)));
    }
  }

  const Program& p_;
  Slots given_;
  std::vector<Slot> slots_;
  Bound m_, n_, k_;
  std::vector<std::pair<std::string_view, Bound>> symbols_;
  std::optional<Device> device_;
};

}  // namespace

std::vector<Tensor> bind(const Program& p, const std::map<std::string, Tensor, std::less<>>& named) {
  std::vector<Tensor> all;
  std::vector<std::string_view> names;
  const std::vector<Slot> slots = p.slots();
  for (const Slot& s : slots) names.push_back(s.name);
  for (const auto& [name, tensor] : named)
    if (!p.slot(name)) {
      std::string known;
      for (std::string_view n : names) known += fmt::format("{}{}", known.empty() ? "" : ", ", n);
      language::fail(ErrorKind::type, {}, p.name,
                     fmt::format("no argument is called '{}'{}; the arguments are {}", name,
                                 language::did_you_mean(name, names), known));
    }
  for (const Slot& s : slots) {
    const auto found = named.find(s.name);
    if (found != named.end()) {
      all.push_back(found->second);
    } else if (s.role == Slot::Role::output) {
      all.emplace_back();
    } else {
      language::fail(
          ErrorKind::shape, {}, p.name,
          fmt::format("'{}' isn't given: expected {}{}; only outputs may be left out", s.name, name_of(s.dtype),
                      s.role == Slot::Role::a   ? "[M, K]"
                      : s.role == Slot::Role::b ? "[N, K]"
                                                : spell(*s.shape)));
    }
  }
  return all;
}

Extents check_arguments(const Program& p, Slots slots) { return ArgumentChecker(p, slots).run(); }

}  // namespace coda

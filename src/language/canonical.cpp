// The one form that each program has: constant `where`s folded, dead values dropped, nodes in the order of the text.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "diagnostics.hpp"
#include "internal.hpp"

namespace coda::language {
namespace {

std::size_t at(ValueId v) { return static_cast<std::size_t>(v); }

class Canonicaliser {
 public:
  explicit Canonicaliser(Program& p) : p_(p) {}

  void run() {
    check_indices();
    fold();
    mark_needed();
    collect_names();
    find_nameless();
    rebuild();
  }

 private:
  struct Pair {
    ValueId members[2] = {no_value, no_value};
    std::string names[2];
  };

  [[noreturn]] void broken(std::string_view what) {
    fail(ErrorKind::internal, {}, p_.name, fmt::format("a program that was put together wrongly: {}", what));
  }

  /// Programs are plain data, so anything may stand in them.
  void check_indices() {
    const auto count = static_cast<ValueId>(p_.nodes.size());
    if (p_.nodes.size() > max_nodes) fail(ErrorKind::type, {}, p_.name, fmt::format("more than {} values", max_nodes));
    for (ValueId v = 0; v < count; ++v) {
      const Node& n = p_.node(v);
      for (ValueId a : n.args)
        if (a != no_value && (a < 0 || a >= v)) broken("an argument that doesn't come before its user");
      const bool operand = n.op == Op::operand || n.op == Op::lookup;
      const std::size_t limit = operand ? p_.operands.size() : n.op == Op::extent ? 3 : n.op == Op::split ? 2 : 1;
      if (n.index < 0 || static_cast<std::size_t>(n.index) >= limit) broken("an index out of range");
      std::size_t arguments = static_cast<std::size_t>(arity_of(n.op));
      switch (n.op) {
        case Op::split:
        case Op::round_to:
        case Op::reduce_sum:
        case Op::reduce_max:
        case Op::softmax_max:
        case Op::softmax_sum: arguments = 1; break;
        case Op::join: arguments = 2; break;
        case Op::pick: arguments = n.args[2] == no_value ? 2 : 3; break;
        case Op::lookup:
          arguments = p_.operands[static_cast<std::size_t>(n.index)].shape.layout == Layout::table1 ? 1 : 2;
          break;
        default: break;
      }
      for (std::size_t i = 0; i < n.args.size(); ++i)
        if ((n.args[i] != no_value) != (i < arguments)) broken(fmt::format("{} of a wrong arity", name_of(n.op)));
    }
    std::vector<bool> let_seen(p_.lets.size()), output_seen(p_.outputs.size());
    for (std::int32_t s : p_.statements) {
      auto& seen = s >= 0 ? let_seen : output_seen;
      const auto i = static_cast<std::size_t>(s >= 0 ? s : -1 - s);
      if (i >= seen.size() || seen[i]) broken("statements that don't match the lets and outputs");
      seen[i] = true;
    }
    if (p_.statements.size() != p_.lets.size() + p_.outputs.size()) broken("lets or outputs that are no statements");
    for (const Let& let : p_.lets) {
      if (let.names.size() != let.values.size() || let.names.empty() || let.names.size() > 2) broken("a let");
      for (ValueId v : let.values) {
        if (v == no_value && let.names.size() == 2) continue;
        if (v < 0 || v >= count) broken("a let of no value");
        if (is_pair(p_.node(v).op) != (let.names.size() == 2)) broken("a let of one member of a pair");
      }
    }
    for (const Output& o : p_.outputs)
      if (o.value < 0 || o.value >= count) broken("an output of no value");
  }

  /// Replaces constant `where`s by the branch they take, and every leaf by its first.
  void fold() {
    Constants known(p_.nodes.size());
    std::map<std::pair<Op, int>, ValueId> leaves;
    now_.resize(p_.nodes.size());
    for (ValueId v = 0; at(v) < p_.nodes.size(); ++v) {
      Node& n = p_.nodes[at(v)];
      for (ValueId& a : n.args)
        if (a != no_value) a = now_[at(a)];
      now_[at(v)] = v;
      if (is_leaf(n.op)) now_[at(v)] = leaves.try_emplace({n.op, n.index}, v).first->second;
      if (n.op == Op::where) {
        const auto& condition = known[at(n.args[0])];
        if (condition && condition->kind == ValueKind::boolean) now_[at(v)] = n.args[condition->value != 0 ? 1 : 2];
      }
      known[at(v)] = evaluate(n, known);
    }
    for (Let& let : p_.lets)
      for (ValueId& v : let.values)
        if (v != no_value) v = now_[at(v)];
    for (Output& o : p_.outputs) o.value = now_[at(o.value)];
  }

  void mark_needed() {
    needed_.assign(p_.nodes.size(), false);
    for (const Output& o : p_.outputs) needed_[at(o.value)] = true;
    for (std::size_t v = p_.nodes.size(); v-- > 0;) {
      if (!needed_[v]) continue;
      for (ValueId a : p_.nodes[v].args)
        if (a != no_value) needed_[at(a)] = true;
    }
  }

  /// The names that values already have: the first one of each stays, later ones were aliases.
  void collect_names() {
    pair_of_.assign(p_.nodes.size(), -1);
    name_.assign(p_.nodes.size(), "");
    for (std::int32_t s : p_.statements) {
      if (s < 0) continue;
      const Let& let = p_.lets[static_cast<std::size_t>(s)];
      if (let.names.size() == 1) {
        const ValueId v = let.values[0];
        if (needed_[at(v)] && name_[at(v)].empty() && pair_of_[at(v)] < 0) name_[at(v)] = let.names[0];
        continue;
      }
      Pair pair;
      for (std::size_t i : {0u, 1u}) {
        if (let.values[i] == no_value || !needed_[at(let.values[i])]) continue;
        pair.members[i] = let.values[i];
        pair.names[i] = let.names[i];
      }
      add_pair(pair);
    }
    // Members that no let names: made by a builder.
    for (ValueId v = 0; at(v) < p_.nodes.size(); ++v) {
      const Node& n = p_.node(v);
      if (!needed_[at(v)] || !is_pair(n.op) || pair_of_[at(v)] >= 0) continue;
      Pair pair;
      const auto member = [](const Node& x) { return x.op == Op::split ? x.index : x.op == Op::softmax_sum ? 1 : 0; };
      pair.members[member(n)] = v;
      for (ValueId w = v + 1; at(w) < p_.nodes.size(); ++w) {
        const Node& o = p_.node(w);
        if (needed_[at(w)] && is_pair(o.op) && pair_of_[at(w)] < 0 && o.args == n.args && o.pairing == n.pairing &&
            o.over == n.over && (o.op == Op::split) == (n.op == Op::split) && member(o) != member(n)) {
          pair.members[member(o)] = w;
          break;
        }
      }
      add_pair(pair);
    }
  }

  void add_pair(const Pair& pair) {
    for (ValueId v : pair.members)
      if (v != no_value) pair_of_[at(v)] = static_cast<int>(pairs_.size());
    pairs_.push_back(pair);
  }

  /// What the text can't say without a name: a value used twice, an expression too deep.
  void find_nameless() {
    for (const Operand& o : p_.operands) taken_.insert(o.name);
    for (const Let& let : p_.lets) taken_.insert(let.names.begin(), let.names.end());
    wants_name_.assign(p_.nodes.size(), false);
    std::vector<int> uses(p_.nodes.size(), 0), depth(p_.nodes.size(), 0);
    std::vector<bool> pair_counted(pairs_.size(), false);
    for (std::size_t v = 0; v < p_.nodes.size(); ++v) {
      if (!needed_[v]) continue;
      if (const int pair = pair_of_[v]; pair >= 0) {
        if (pair_counted[static_cast<std::size_t>(pair)]) continue;
        pair_counted[static_cast<std::size_t>(pair)] = true;
      }
      for (ValueId a : p_.nodes[v].args)
        if (a != no_value) ++uses[at(a)];
    }
    for (const Output& o : p_.outputs) ++uses[at(o.value)];

    for (std::size_t v = 0; v < p_.nodes.size(); ++v) {
      if (!needed_[v]) continue;
      const Node& n = p_.nodes[v];
      const bool atom = is_leaf(n.op) || n.op == Op::constant || pair_of_[v] >= 0 || !name_[v].empty();
      for (ValueId a : n.args)
        if (a != no_value) depth[v] = std::max(depth[v], depth[at(a)] + 1);
      if (!atom && (uses[v] > 1 || depth[v] >= max_depth)) wants_name_[v] = true;
      if (atom || wants_name_[v]) depth[v] = 0;
    }
  }

  /// Names count in the order of the text, whatever order the nodes were made in.
  std::string fresh_name() {
    std::string name;
    do name = fmt::format("t{}", next_name_++);
    while (taken_.contains(name));
    return name;
  }

  // ---- writing the new program, in the order of its text

  void rebuild() {
    out_.name = p_.name;
    out_.doc = p_.doc;
    out_.params = p_.params;
    out_.a_dtype = p_.a_dtype;
    out_.b_dtype = p_.b_dtype;
    drop_operands();
    moved_.assign(p_.nodes.size(), no_value);
    for (std::int32_t s : p_.statements) {
      if (s >= 0) {
        for (ValueId v : p_.lets[static_cast<std::size_t>(s)].values)
          if (v != no_value && needed_[at(v)]) define(v);
      } else {
        const Output& o = p_.outputs[static_cast<std::size_t>(-1 - s)];
        if (!is_leaf(p_.node(o.value).op)) {
          define_below(o.value);
          define(o.value);
        }
        Output moved = o;
        moved.value = emit(o.value);
        out_.outputs.push_back(std::move(moved));
        out_.statements.push_back(-static_cast<std::int32_t>(out_.outputs.size()));
      }
    }
    p_ = std::move(out_);
  }

  void drop_operands() {
    std::vector<bool> kept(p_.operands.size(), false);
    for (std::size_t v = 0; v < p_.nodes.size(); ++v)
      if (const Node& n = p_.nodes[v]; needed_[v] && (n.op == Op::operand || n.op == Op::lookup))
        kept[static_cast<std::size_t>(n.index)] = true;
    operand_.assign(p_.operands.size(), 0);
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (!kept[i]) continue;
      operand_[i] = static_cast<int>(out_.operands.size());
      out_.operands.push_back(p_.operands[i]);
    }
  }

  bool has_statement(ValueId v) const { return pair_of_[at(v)] >= 0 || wants_name_[at(v)] || !name_[at(v)].empty(); }

  /// Writes the let of `v`, if it has one that isn't written yet, after the lets that it needs.
  void define(ValueId v) {
    if (!has_statement(v) || defined_.contains(v)) return;
    define_below(v);
    Let let;
    if (const int i = pair_of_[at(v)]; i >= 0) {
      const Pair& pair = pairs_[static_cast<std::size_t>(i)];
      for (int m : {0, 1}) {
        const bool present = pair.members[m] != no_value;
        let.names.push_back(!present ? "_" : pair.names[m].empty() ? fresh_name() : pair.names[m]);
        let.values.push_back(present ? emit(pair.members[m]) : no_value);
      }
    } else {
      let.names.push_back(wants_name_[at(v)] ? fresh_name() : name_[at(v)]);
      let.values.push_back(emit(v));
    }
    defined_.insert(v);
    if (const int i = pair_of_[at(v)]; i >= 0)
      for (ValueId member : pairs_[static_cast<std::size_t>(i)].members) defined_.insert(member);
    out_.statements.push_back(static_cast<std::int32_t>(out_.lets.size()));
    out_.lets.push_back(std::move(let));
  }

  /// Writes the lets that the expression of `v` mentions and that aren't written yet. A stack of our own: chains of
  /// lets can be long.
  void define_below(ValueId v) {
    struct Frame {
      ValueId v;
      std::size_t next;
    };
    std::vector<Frame> stack{{v, 0}};
    while (!stack.empty()) {
      Frame& f = stack.back();
      const Node& n = p_.node(f.v);
      if (f.next == n.args.size()) {
        const ValueId done = f.v;
        stack.pop_back();
        if (done != v) define(done);  // all that it needs is written, so this goes no deeper
        continue;
      }
      const ValueId a = n.args[f.next++];
      // A leaf's let stands where its author put it; until then the leaf is written by its own name.
      if (a != no_value && moved_[at(a)] == no_value && !is_leaf(p_.node(a).op)) stack.push_back({a, 0});
    }
  }

  /// The new node of `v`, its arguments before it.
  ValueId emit(ValueId v) {
    // An unnamed constant is written anew wherever it stands.
    const bool repeats = p_.node(v).op == Op::constant && !has_statement(v);
    if (moved_[at(v)] != no_value && !repeats) return moved_[at(v)];
    Node n = p_.node(v);
    for (ValueId& a : n.args)
      if (a != no_value) a = emit(a);
    if (n.op == Op::operand || n.op == Op::lookup) n.index = operand_[static_cast<std::size_t>(n.index)];
    out_.nodes.push_back(std::move(n));
    moved_[at(v)] = static_cast<ValueId>(out_.nodes.size() - 1);
    return moved_[at(v)];
  }

  Program& p_;
  Program out_;
  std::vector<ValueId> now_;  ///< old node -> the old node that stands for it
  std::vector<bool> needed_;
  std::vector<std::string> name_;  ///< of a value that a let of its own names
  std::vector<int> pair_of_;       ///< index into pairs_, or -1
  std::vector<Pair> pairs_;
  std::vector<bool> wants_name_;  ///< a value that gets a let it doesn't have yet
  std::set<std::string, std::less<>> taken_;
  int next_name_ = 0;
  std::vector<int> operand_;    ///< old operand -> new
  std::vector<ValueId> moved_;  ///< old node -> new
  std::set<ValueId> defined_;   ///< values whose let is written
};

}  // namespace

void canonicalise(Program& p) { Canonicaliser(p).run(); }

}  // namespace coda::language

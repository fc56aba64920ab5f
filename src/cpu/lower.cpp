// From a checked program to steps over strips: values.
#include "cpu/lower.hpp"

#include <fmt/format.h>

#include <bit>

#include "cpu/columns.hpp"
#include "cpu/memory.hpp"
#include "cpu/scalar_ops.hpp"

namespace coda::cpu {

Level level_of(const Type& t) {
  if (t.width == Width::none) return t.rows ? Level::row : Level::scalar;
  return t.rows ? Level::element : Level::column;
}

Lowering::Lowering(const Program& p, Slots slots, const Extents& e, const Grid& grid, bool at_once)
    : p_(p), e_(e), grid_(grid), at_once_(at_once), made_(p.nodes.size()) {
  arena.kernels = &kernels();
  arena.slots = slots;
  arena.program = &p;
}

Made Lowering::value(ValueId v) {
  std::unique_ptr<Made>& made = made_[static_cast<std::size_t>(v)];
  if (!made) made = std::make_unique<Made>(lower(v));
  return *made;
}

Made Lowering::real(ValueId v) {
  const Made m = value(v);
  if (m.kind == ValueKind::real) return m;
  const auto found = reals_.find(v);
  if (found != reals_.end()) return found->second;
  return reals_.emplace(v, as_real(m)).first->second;
}

Made Lowering::as_real(const Made& m) {
  if (m.kind == ValueKind::real) return m;
  Step s;
  s.fn = arena.kernels->to_real;
  s.x = m.place;
  s.repeat = repeats(m, m.level);
  return emit(s, m.level, m.lay, ValueKind::real);
}

/// Whether an argument is one element, repeated, where `user` runs.
int Lowering::repeats(const Made& m, Level user) const {
  return m.level == Level::scalar || (m.level == Level::row && user == Level::element) ? 1 : 0;
}

Made Lowering::constant(std::int32_t word, ValueKind kind) {
  Made m;
  m.place.kind = Place::Kind::scalar;
  m.place.index = static_cast<int>(arena.scalars.size());
  m.kind = kind;
  arena.scalars.push_back(word);
  return m;
}

Made Lowering::emit(Step s, Level level, Lay lay, ValueKind kind) {
  Made m{{}, level, lay, kind};
  m.place.lay = lay;
  s.lay = lay;
  const auto run = [&](std::int64_t count) {
    s.d = m.place;
    const Tile whole = grid_.whole();
    Frame f;
    f.arena = &arena;
    f.tile = &whole;
    execute(s, arena, whole, 0, count, resolve(s.d, f).base, resolve(s.x, f).base, resolve(s.y, f).base,
            resolve(s.z, f).base);
  };
  switch (level) {
    case Level::scalar:
      m.place.kind = Place::Kind::scalar;
      m.place.index = static_cast<int>(arena.scalars.size());
      arena.scalars.push_back(0);
      run(1);
      return m;
    case Level::row:
      m.place.kind = Place::Kind::row;
      m.place.index = static_cast<int>(arena.rows.size());
      arena.rows.emplace_back(static_cast<std::size_t>(e_.m));
      run(e_.m);
      return m;
    case Level::column:
      m.place.kind = Place::Kind::column;
      m.place.index = static_cast<int>(column_lays.size());
      column_lays.push_back(lay);
      if (at_once_) {
        const std::int64_t count = grid_.whole().columns(lay).count;
        arena.columns.emplace_back(static_cast<std::size_t>(count));
        run(count);
      } else {
        s.d = m.place;
        column_steps.push_back(s);
      }
      return m;
    case Level::element:
      m.place.kind = Place::Kind::temporary;
      m.place.index = static_cast<int>(temporary_lays.size());
      temporary_lays.push_back(lay);
      s.d = m.place;
      element_steps.push_back(s);
      return m;
  }
  return m;
}

/// In a tile of two runs of columns each run's product is a block of its own, because oneDNN is fastest where rows
/// follow each other; so all of acc is no strip.
bool Lowering::in_pieces(const Place& p) const {
  return p.kind == Place::Kind::acc && p.quarters == 4 && !grid_.contiguous(Lay::full);
}

Made Lowering::whole(const Made& m) {
  if (!in_pieces(m.place)) return m;
  Step s;
  s.kind = Step::Kind::gather;
  s.x = m.place;
  return emit(s, Level::element, m.lay, m.kind);
}

Made Lowering::filled(const Made& m, Lay lay, Level level) {
  if (in_pieces(m.place)) return whole(m);
  if (m.lay == lay && (m.level == level || level == Level::element) && !repeats(m, level)) return m;
  Step s;
  s.kind = Step::Kind::fill;
  s.x = m.place;
  return emit(s, level, lay, m.kind);
}

Made Lowering::lower(ValueId v) {
  const Node& n = p_.node(v);
  const Level level = level_of(n.type);
  const Lay lay = lay_of(n.type);
  if (given_.contains(v)) return operand(operand_number(v), lay, 0, n.type);
  switch (n.op) {
    case Op::acc: {
      uses_product = true;
      Made m{{}, Level::element, Lay::full, ValueKind::real};
      m.place.kind = Place::Kind::acc;
      m.place.lay = Lay::full;
      return m;
    }
    case Op::constant:
      return n.type.kind == ValueKind::real
                 ? constant(std::bit_cast<std::int32_t>(static_cast<float>(n.number)), ValueKind::real)
                 : constant(static_cast<std::int32_t>(n.number), n.type.kind);
    case Op::extent:
      return constant(static_cast<std::int32_t>(n.index == 0 ? e_.m : n.index == 1 ? e_.n : e_.k), ValueKind::integer);
    case Op::operand: return operand(n.index, lay, 0, n.type);
    case Op::row: {
      Made m{{}, Level::row, Lay::one, ValueKind::integer};
      m.place.kind = Place::Kind::row;
      m.place.index = static_cast<int>(arena.rows.size());
      std::vector<std::int32_t>& row = arena.rows.emplace_back(static_cast<std::size_t>(e_.m));
      for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<std::int32_t>(i);
      return m;
    }
    case Op::col: {
      Step s;
      s.kind = Step::Kind::iota;
      return emit(s, Level::column, Lay::full, ValueKind::integer);
    }
    case Op::split: return split(n);
    case Op::join: return join(n);
    case Op::lookup: return lookup(n);
    case Op::round_to: {
      const Made x = whole(real(n.args[0]));
      Step s;
      s.kind = Step::Kind::round;
      s.dtype = n.dtype;
      s.x = x.place;
      return emit(s, level, lay, ValueKind::real);
    }
    case Op::reduce_sum:
    case Op::reduce_max:
    case Op::softmax_max:
    case Op::softmax_sum:
    case Op::pick:
      if (n.over.kind == Over::Kind::segment) return segment(n);
      break;
    default: return elementwise(n);
  }
  throw Error(ErrorKind::internal,
              fmt::format("program {}: '{}' is used before it is complete", p_.name, name_of(n.op)));
}

Made Lowering::segment(const Node& n) {
  const Level level = level_of(n.type);
  const Lay lay = lay_of(n.type);
  Step s;
  s.kind = Step::Kind::segment;
  s.op = n.op;
  s.segment = n.over.segment;
  s.x = filled(real(n.args[0]), lay, level).place;
  if (n.op == Op::pick) {
    const Made index = value(n.args[1]);
    s.y = index.place;
    s.repeat = 2 * repeats(index, level);
    if (n.args[2] != no_value) s.z = value(n.args[2]).place;
  }
  return emit(s, level, lay, ValueKind::real);
}

/// Which operand a node is, the program's or a given matrix; -1 for a computed value.
int Lowering::operand_number(ValueId v) const {
  const auto found = given_.find(v);
  if (found != given_.end()) return found->second;
  return p_.node(v).op == Op::operand ? p_.node(v).index : -1;
}

void Lowering::give(ValueId v, const Tensor& matrix) {
  given_[v] = static_cast<int>(p_.operands.size() + arena.given.size());
  arena.given.push_back(matrix);
}

Made Lowering::operand(int index, Lay lay, std::int64_t shift, const Type& type) {
  const Tensor& t = arena.operand(index);
  const Level level = level_of(type);
  const auto key = std::make_tuple(index, static_cast<int>(lay), shift);
  const auto found = operands_.find(key);
  if (found != operands_.end()) return found->second;
  Made m{{}, level, lay, type.kind};
  if (level == Level::scalar) {
    std::int32_t word = 0;
    load_run(*arena.kernels, t.dtype, t.data, 1, 1, &word);
    m = constant(word, type.kind);
  } else if (level == Level::row) {
    m.place.kind = Place::Kind::row;
    m.place.index = static_cast<int>(arena.rows.size());
    std::vector<std::int32_t>& row = arena.rows.emplace_back(static_cast<std::size_t>(e_.m));
    load_run(*arena.kernels, t.dtype, t.data, t.stride[0], e_.m, row.data());
  } else {
    const bool words = t.dtype == DType::f32 || t.dtype == DType::i32;
    if (words && t.stride[t.rank - 1] == 1 && (at_once_ || grid_.contiguous(lay))) {
      m.place.kind = Place::Kind::operand;
      m.place.index = index;
      m.place.lay = lay;
      m.place.shift = shift;
    } else {
      Step s;
      s.kind = Step::Kind::load;
      s.index = index;
      s.shift = shift;
      m = emit(s, level, lay, type.kind);
    }
  }
  operands_.emplace(key, m);
  return m;
}

Made Lowering::split(const Node& n) {
  const Type& type = p_.node(n.args[0]).type;
  const Level level = level_of(n.type);
  const Lay lay = lay_of(n.type);
  if (n.pairing.kind != Pairing::Kind::halves) {
    const Made x = whole(value(n.args[0]));
    Step s;
    s.kind = Step::Kind::split;
    s.pairing = n.pairing;
    s.member = n.index;
    s.x = x.place;
    return emit(s, level, lay, x.kind);
  }
  // The members of a split by halves lie as they are: an operand's in its columns, a strip's in its two halves.
  if (const int number = operand_number(n.args[0]); number >= 0) {
    return operand(number, lay, n.index * (columns_of(type.width, e_.n) / 2), n.type);
  }
  Made m = value(n.args[0]);
  m.lay = lay;
  m.place.quarter += n.index * m.place.quarters / 2;
  m.place.quarters /= 2;
  return m;
}

Made Lowering::join(const Node& n) {
  const Level level = level_of(n.type);
  const Lay lay = lay_of(n.type);
  const Lay member = n.type.width == Width::twice              ? Lay::full
                     : n.pairing.kind == Pairing::Kind::halves ? Lay::half_split
                                                               : Lay::half;
  const bool real_result = n.type.kind == ValueKind::real;
  const auto arg = [&](int i) {
    const Made m = real_result ? real(n.args[static_cast<std::size_t>(i)]) : value(n.args[static_cast<std::size_t>(i)]);
    return filled(m, member, level);
  };
  Step s;
  s.kind = Step::Kind::join;
  s.pairing = n.pairing;
  s.x = arg(0).place;
  s.y = arg(1).place;
  return emit(s, level, lay, n.type.kind);
}

Made Lowering::lookup(const Node& n) {
  const Level level = level_of(n.type);
  Step s;
  s.kind = Step::Kind::lookup;
  s.index = n.index;
  const Made x = value(n.args[0]);
  s.x = x.place;
  s.repeat = repeats(x, level);
  if (n.args[1] != no_value) {
    const Made y = value(n.args[1]);
    s.y = y.place;
    s.repeat |= 2 * repeats(y, level);
  }
  return emit(s, level, lay_of(n.type), ValueKind::real);
}

Made Lowering::elementwise(const Node& n) {
  const scalar::Rule rule = scalar::rule_of(n.op);
  const int arity = arity_of(n.op);
  const int first = rule == scalar::Rule::where ? 1 : 0;
  bool integers = true;
  for (int a = first; a < arity; ++a) {
    integers = integers && value(n.args[static_cast<std::size_t>(a)]).kind != ValueKind::real;
  }
  if (rule == scalar::Rule::real) integers = false;
  const Level level = level_of(n.type);
  Step s;
  s.op = n.op;
  const auto op = static_cast<std::size_t>(n.op);
  s.fn = integers ? arena.kernels->integer[op] : arena.kernels->real[op];
  Place* places[] = {&s.x, &s.y, &s.z};
  for (int a = 0; a < arity; ++a) {
    const ValueId v = n.args[static_cast<std::size_t>(a)];
    const Made m = integers || a < first ? value(v) : real(v);
    *places[a] = m.place;
    s.repeat |= repeats(m, level) << a;
    s.pieces = s.pieces || in_pieces(m.place);
  }
  if (s.fn == nullptr) {
    throw Error(ErrorKind::internal, fmt::format("program {}: no loop for '{}' of {}", p_.name, name_of(n.op),
                                                 integers ? "integers" : "reals"));
  }
  return emit(s, level, lay_of(n.type), n.type.kind);
}

}  // namespace coda::cpu

// Types of values: kind, rows, width, pairing, stage; and the locality rule.
#include <fmt/format.h>

#include <numeric>
#include <span>

#include "diagnostics.hpp"
#include "internal.hpp"

namespace coda::language {
namespace {

enum class Rule { real, arith, integer, compare, logic, where };

Rule rule_of(Op op) {
  static constexpr Rule rules[] = {
#define CODA_OP(name, arity, rule, formula) Rule::rule,
#include "coda/ops.def"
#undef CODA_OP
  };
  return rules[static_cast<std::size_t>(op) - static_cast<std::size_t>(Op::add)];
}

std::string_view kind_name(ValueKind k) {
  constexpr std::string_view names[] = {"real", "integer", "boolean"};
  return names[static_cast<int>(k)];
}

std::size_t at(ValueId v) { return static_cast<std::size_t>(v); }

class Typer {
 public:
  explicit Typer(Program& p)
      : p_(p), class_(p.nodes.size()), source_(p.nodes.size(), no_value), steady_(p.nodes.size(), 1) {
    std::iota(class_.begin(), class_.end(), 0);
  }

  void run() {
    for (ValueId v = 0; at(v) < p_.nodes.size(); ++v) {
      infer(v);
      check_local(v);
    }
    for (const Output& o : p_.outputs) check_output(o);
    // A pairing may become known after its first value.
    for (ValueId v = 0; at(v) < p_.nodes.size(); ++v) {
      Type& t = p_.nodes[at(v)].type;
      const ValueId source = source_[at(find(v))];
      if ((t.width == Width::half || t.width == Width::twice) && source != no_value)
        t.pairing = p_.node(source).pairing;
    }
  }

 private:
  // ---------------------------------------------------------------- pairings: classes of values that meet

  ValueId find(ValueId v) {
    while (class_[at(v)] != v) v = class_[at(v)] = class_[at(class_[at(v)])];
    return v;
  }

  /// The class of `v` has the pairing of node `source`.
  void set_pairing(ValueId v, ValueId source, ValueId user) {
    const ValueId c = find(v);
    if (source_[at(c)] == no_value) source_[at(c)] = source;
    require_same_pairing(source_[at(c)], source, v, no_value, user);
  }

  void unify(ValueId a, ValueId b, ValueId user) {
    const ValueId ca = find(a), cb = find(b);
    if (ca == cb) return;
    if (source_[at(ca)] != no_value && source_[at(cb)] != no_value)
      require_same_pairing(source_[at(ca)], source_[at(cb)], a, b, user);
    const ValueId source = source_[at(ca)] != no_value ? source_[at(ca)] : source_[at(cb)];
    class_[at(ca)] = cb;
    source_[at(cb)] = source;
  }

  void require_same_pairing(ValueId x, ValueId y, ValueId a, ValueId b, ValueId user) {
    const Node &s = p_.node(x), &t = p_.node(y);
    if (s.pairing == t.pairing) return;
    const std::string second = b == no_value ? "this place" : fmt::format("'{}'", name(b));
    fail(ErrorKind::locality, location_of(p_, user), p_.name,
         fmt::format("'{}' pairs columns by {} (line {}) and {} by {} (line {}): elements that stand together in one "
                     "come from different columns in the other.\n  The way round: join one of them back and split it by "
                     "the other pairing",
                     name(a), spell_pairing(s), s.where.line, second, spell_pairing(t), t.where.line));
  }
  static std::string spell_pairing(const Node& n) { return language::spell(n.pairing); }

  // ---------------------------------------------------------------- messages

  std::string name(ValueId v) const { return language::spell(p_, v); }

  [[noreturn]] void refuse(ValueId v, std::string_view message) const {
    fail(ErrorKind::type, location_of(p_, v), p_.name, message);
  }

  /// "a value for each row", for a type.
  static std::string spell_extent(const Type& t) {
    if (!t.rows && t.width == Width::none) return "one value";
    if (t.width == Width::none) return "one value a row";
    const std::string_view width = t.width == Width::full   ? ""
                                   : t.width == Width::half ? ", at half width"
                                                            : ", at twice the width";
    return fmt::format("one value {}{}", t.rows ? "an element" : "a column", width);
  }

  // ---------------------------------------------------------------- inference

  const Type& type(ValueId v) const { return p_.node(v).type; }

  void require_kind(ValueId user, ValueId a, ValueKind least) {
    const ValueKind kind = type(a).kind;
    const bool fits = kind == least || (least == ValueKind::real && kind == ValueKind::integer);
    if (fits) return;
    std::string hint;
    if (kind == ValueKind::boolean && least != ValueKind::boolean)
      hint = fmt::format("; where({}, 1, 0) makes a number of it", name(a));
    else if (least == ValueKind::boolean)
      hint = "; compare it, say with != 0";
    refuse(user, fmt::format("'{}' takes {} values, and '{}' is {}{}", name_of(p_.node(user).op), kind_name(least),
                             name(a), kind_name(kind), hint));
  }

  /// Rows, width, pairing and stage of values that meet element by element.
  void meet(ValueId v, Type& t, std::span<const ValueId> args) {
    ValueId wide = no_value;
    for (ValueId a : args) {
      if (a == no_value) continue;
      const Type& x = type(a);
      t.rows = t.rows || x.rows;
      if (x.stage == Stage::finish) t.stage = Stage::finish;
      if (x.width == Width::none) continue;
      if (wide == no_value) {
        wide = a;
        t.width = x.width;
      } else if (x.width != t.width) {
        refuse(v, fmt::format("'{}' has {} width and '{}' {} width: expected one width; split halves a width and join "
                              "doubles it",
                              name(wide), spell(t.width), name(a), spell(x.width)));
      } else if (x.width != Width::full) {
        unify(wide, a, v);
      }
    }
    if (wide != no_value && t.width != Width::full) unify(v, wide, v);
  }

  void infer(ValueId v) {
    Node& n = p_.nodes[at(v)];
    Type t;
    switch (n.op) {
      case Op::acc:
        t.rows = true;
        t.width = Width::full;
        break;
      case Op::constant: t.kind = n.is_integer ? ValueKind::integer : ValueKind::real; break;
      case Op::extent: t.kind = ValueKind::integer; break;
      case Op::row:
        t.kind = ValueKind::integer;
        t.rows = true;
        break;
      case Op::col:
        t.kind = ValueKind::integer;
        t.width = Width::full;
        break;
      case Op::operand: {
        const Operand& o = p_.operands[static_cast<std::size_t>(n.index)];
        t.kind = is_integer(o.dtype) ? ValueKind::integer : ValueKind::real;
        t.rows = o.shape.layout == Layout::row || o.shape.layout == Layout::matrix;
        t.width = o.shape.width;
        break;
      }
      case Op::split: infer_split(v, n, t); break;
      case Op::join: infer_join(v, n, t); break;
      case Op::lookup:
        for (ValueId a : n.args)
          if (a != no_value) require_kind(v, a, ValueKind::integer);
        meet(v, t, n.args);
        break;
      case Op::round_to:
        require_kind(v, n.args[0], ValueKind::real);
        meet(v, t, n.args);
        break;
      case Op::reduce_sum:
      case Op::reduce_max:
      case Op::softmax_max:
      case Op::softmax_sum:
      case Op::pick: infer_reduction(v, n, t); break;
      default: infer_elementwise(v, n, t); break;
    }
    n.type = t;
    steady_[at(v)] = steady(n);
  }

  /// Over how many columns, from each multiple of it on, a value is sure to stay the same: 0 for all of them.
  std::int32_t steady(const Node& n) const {
    if (n.type.width == Width::none) return 0;
    if (n.op >= Op::reduce_sum && n.op <= Op::pick) return n.over.kind == Over::Kind::segment ? n.over.segment : 1;
    if (!is_elementwise(n.op) && n.op != Op::round_to && n.op != Op::lookup) return 1;
    if (n.op == Op::floordiv && p_.node(n.args[0]).op == Op::col) {
      const Node& by = p_.node(n.args[1]);
      if (by.op == Op::constant && by.number > 0) return static_cast<std::int32_t>(by.number);
    }
    std::int32_t run = 0;
    for (ValueId a : n.args)
      if (a != no_value) run = std::gcd(run, steady_[at(a)]);
    return run;
  }

  void infer_elementwise(ValueId v, const Node& n, Type& t) {
    const auto all = [&](ValueKind kind) {
      for (ValueId a : n.args)
        if (a != no_value) require_kind(v, a, kind);
    };
    const auto promoted = [&](std::size_t first) {
      for (std::size_t i = first; i < n.args.size(); ++i)
        if (n.args[i] != no_value && type(n.args[i]).kind != ValueKind::integer) return ValueKind::real;
      return ValueKind::integer;
    };
    switch (rule_of(n.op)) {
      case Rule::real: all(ValueKind::real); break;
      case Rule::arith:
        all(ValueKind::real);
        t.kind = promoted(0);
        break;
      case Rule::integer:
        all(ValueKind::integer);
        t.kind = ValueKind::integer;
        break;
      case Rule::compare:
        all(ValueKind::real);
        t.kind = ValueKind::boolean;
        break;
      case Rule::logic:
        all(ValueKind::boolean);
        t.kind = ValueKind::boolean;
        break;
      case Rule::where:
        require_kind(v, n.args[0], ValueKind::boolean);
        require_kind(v, n.args[1], ValueKind::real);
        require_kind(v, n.args[2], ValueKind::real);
        t.kind = promoted(1);
        break;
    }
    meet(v, t, n.args);
  }

  void infer_split(ValueId v, const Node& n, Type& t) {
    const Type& x = type(n.args[0]);
    if (x.kind == ValueKind::boolean) require_kind(v, n.args[0], ValueKind::real);
    if (x.width != Width::full && x.width != Width::twice)
      refuse(v, fmt::format("split of '{}', which has {}: expected full width or twice the width", name(n.args[0]),
                            spell_extent(x)));
    if (x.stage == Stage::finish) refuse_finish(v, n.args[0], "split");
    t = x;
    t.pairing = {};
    t.width = x.width == Width::twice ? Width::full : Width::half;
    // At twice the width it is the argument that has the pairing, at half width the result.
    set_pairing(x.width == Width::twice ? n.args[0] : v, v, v);
  }

  void infer_join(ValueId v, const Node& n, Type& t) {
    for (ValueId a : {n.args[0], n.args[1]}) {
      if (type(a).kind == ValueKind::boolean) require_kind(v, a, ValueKind::real);
      if (type(a).stage == Stage::finish) refuse_finish(v, a, "join");
    }
    const bool integers = type(n.args[0]).kind == ValueKind::integer && type(n.args[1]).kind == ValueKind::integer;
    Type both;
    for (ValueId a : {n.args[0], n.args[1]}) {
      const Type& x = type(a);
      both.rows = both.rows || x.rows;
      if (x.width == Width::none) continue;
      if (both.width != Width::none && both.width != x.width)
        refuse(v, fmt::format("join of '{}', of {} width, and '{}', of {} width: expected one width", name(n.args[0]),
                              spell(type(n.args[0]).width), name(n.args[1]), spell(type(n.args[1]).width)));
      both.width = x.width;
    }
    if (both.width != Width::half && both.width != Width::full)
      refuse(v, fmt::format("join of '{}' and '{}', which have {}: expected half width or full width", name(n.args[0]),
                            name(n.args[1]), spell_extent(both)));
    t = both;
    t.kind = integers ? ValueKind::integer : ValueKind::real;
    t.width = both.width == Width::half ? Width::full : Width::twice;
    if (both.width == Width::half) {
      for (ValueId a : {n.args[0], n.args[1]})
        if (type(a).width == Width::half) set_pairing(a, v, v);
    } else {
      set_pairing(v, v, v);
    }
  }

  void infer_reduction(ValueId v, const Node& n, Type& t) {
    const Type& x = type(n.args[0]);
    require_kind(v, n.args[0], ValueKind::real);
    const bool stats = n.op == Op::softmax_max || n.op == Op::softmax_sum;
    const Over::Kind over = n.over.kind;
    if (x.stage == Stage::finish) refuse_finish(v, n.args[0], name_of(n.op));
    if (!x.rows || x.width == Width::none)
      refuse(v, fmt::format("{} of '{}', which has {}: expected one value an element, as acc has", name_of(n.op),
                            name(n.args[0]), spell_extent(x)));
    if (stats && over == Over::Kind::mn) refuse(v, "softmax_stats over mn: expected over n, over m or over segment(D)");
    if (n.op == Op::pick) check_pick(v, n);
    if (over == Over::Kind::segment) {
      t.rows = true;
      t.width = x.width;
    } else {
      t.stage = Stage::finish;
      t.rows = over == Over::Kind::n;
      t.width = over == Over::Kind::m ? x.width : Width::none;
    }
    if (t.width == Width::half || t.width == Width::twice) unify(v, n.args[0], v);
  }

  /// The index has one value for each result: a row's, a column's, a segment's.
  void check_pick(ValueId v, const Node& n) const {
    const Type& x = type(n.args[0]);
    const Type& i = type(n.args[1]);
    const Over::Kind over = n.over.kind;
    if (over == Over::Kind::mn) refuse(v, "pick over mn: expected over n, over m or over segment(D)");
    if (x.width != Width::full)
      refuse(v, fmt::format("pick of '{}', of {} width: expected full width", name(n.args[0]), spell(x.width)));
    if (i.stage == Stage::finish) refuse_finish(v, n.args[1], name_of(n.op));
    const auto expected = [&](std::string_view what) {
      refuse(v, fmt::format("pick at '{}', which is {} and has {}: expected {}", name(n.args[1]), kind_name(i.kind),
                            spell_extent(i), what));
    };
    const bool integer = i.kind == ValueKind::integer;
    if (over == Over::Kind::n && (!integer || i.width != Width::none || !i.rows))
      expected("an integer a row, say an operand i32[M]");
    if (over == Over::Kind::m && (!integer || i.width != Width::full || i.rows))
      expected("an integer a column, say an operand i32[N]");
    if (over == Over::Kind::segment) {
      if (!integer || (i.width != Width::none && i.width != Width::full)) expected("an integer");
      const std::int32_t run = steady_[at(n.args[1])];
      if (run % n.over.segment != 0)
        expected(fmt::format("one integer for all of a segment: the same for all columns, or made of col // {}",
                             n.over.segment));
    }
    if (n.args[2] == no_value) return;
    const Type& g = type(n.args[2]);
    if (g.stage == Stage::finish) refuse_finish(v, n.args[2], name_of(n.op));
    if (g.kind != ValueKind::integer || g.width != Width::none || g.rows)
      refuse(v, fmt::format("pick ignoring '{}', which is {} and has {}: expected one integer", name(n.args[2]),
                            kind_name(g.kind), spell_extent(g)));
  }

  // ---------------------------------------------------------------- locality

  /// The reduction that makes `v` known only at the end.
  ValueId culprit(ValueId v) const {
    for (;;) {
      const Node& n = p_.node(v);
      if (!is_elementwise(n.op) && n.op != Op::round_to) return v;
      for (ValueId a : n.args) {
        if (a == no_value || type(a).stage != Stage::finish) continue;
        v = a;
        break;
      }
    }
  }

  /// "it depends on 'ssq' (line 5), a sum over n, which needs a whole row ..."
  std::string why(ValueId v) const {
    const ValueId reduction = culprit(v);
    const Node& r = p_.node(reduction);
    const std::string_view what = r.over.kind == Over::Kind::n   ? "row"
                                  : r.over.kind == Over::Kind::m ? "column"
                                                                 : "matrix";
    const std::string it = reduction == v ? fmt::format("it is a {} {}", name_of(r.op), language::spell(r.over))
                                          : fmt::format("it depends on '{}' (line {}), a {} {}", name(reduction),
                                                        r.where.line, name_of(r.op), language::spell(r.over));
    return fmt::format("{}, which needs the whole {} and is known only when every tile of it is done", it, what);
  }

  std::string way_round(ValueId v) const {
    const Node& r = p_.node(culprit(v));
    const std::string_view extents = r.over.kind == Over::Kind::n ? "M" : r.over.kind == Over::Kind::m ? "N" : "";
    std::string way = fmt::format(
        "The way round: store it with 'finish NAME: f32[{0}] = ...' and read it in the next program as the operand "
        "'in NAME: f32[{0}]'",
        extents);
    if (r.over.kind == Over::Kind::n)
      way +=
          "; a factor of whole rows may be delayed past the next product: store the value without it here, and "
          "multiply acc by the operand there";
    if (r.op == Op::reduce_max && r.over.kind != Over::Kind::mn)
      way += fmt::format("; for a softmax, softmax_stats(x, {}) gives the maximum and the sum at once",
                         language::spell(r.over));
    if (r.over.kind == Over::Kind::n) way += "; a statistic of each head is local as a reduction over segment(D)";
    return way;
  }

  void check_local(ValueId v) const {
    const Type& t = type(v);
    if (t.stage != Stage::finish || !t.rows || t.width == Width::none) return;
    for (ValueId a : p_.node(v).args) {
      if (a == no_value || type(a).stage != Stage::finish) continue;
      fail(ErrorKind::locality, location_of(p_, v), p_.name,
           fmt::format("'{}' isn't local: {}, while '{}' has a value for each element of a tile.\n  {}", name(a), why(a),
                       name(v), way_round(a)));
    }
  }

  [[noreturn]] void refuse_finish(ValueId user, ValueId a, std::string_view op) const {
    fail(ErrorKind::locality, location_of(p_, user), p_.name,
         fmt::format("'{}' isn't local: {}, while {} works on the elements of a tile.\n  {}", name(a), why(a), op,
                     way_round(a)));
  }

  // ---------------------------------------------------------------- outputs

  void check_output(const Output& o) {
    const Type& t = type(o.value);
    const auto bad = [&](ErrorKind kind, std::string_view message) {
      fail(kind, o.where.line > 0 ? o.where : location_of(p_, o.value), p_.name,
           fmt::format("{} '{}': {}", o.finish ? "finish" : "out", o.name, message));
    };
    const auto declared = [&] { return fmt::format("{}{}", name_of(o.dtype), language::spell(o.shape)); };
    if (t.kind == ValueKind::boolean)
      bad(ErrorKind::type,
          fmt::format("'{0}' is boolean: expected a number; where({0}, 1, 0) makes one", name(o.value)));
    if (!o.finish) {
      if (t.stage == Stage::finish)
        bad(ErrorKind::locality,
            fmt::format("'{}' isn't local: {}, while out stores each element of a tile.\n  The way round: 'finish {}: "
                        "f32[{}] = ...'",
                        name(o.value), why(o.value), o.name,
                        t.rows                    ? "M"
                        : t.width == Width::full  ? "N"
                        : t.width == Width::half  ? "N/2"
                        : t.width == Width::twice ? "2N"
                                                  : ""));
      if (!t.rows || t.width != o.shape.width)
        bad(ErrorKind::type, fmt::format("declared {}, and '{}' has {}: expected one value an element{}", declared(),
                                         name(o.value), spell_extent(t),
                                         o.shape.width == Width::half    ? ", at half width"
                                         : o.shape.width == Width::twice ? ", at twice the width"
                                                                         : ""));
      return;
    }
    if (t.stage != Stage::finish)
      bad(ErrorKind::type, fmt::format("'{}' depends on no reduction over n, m or mn: expected one; {}", name(o.value),
                                       t.rows && t.width != Width::none ? "a value an element is stored by out"
                                                                        : "finish stores what reductions yield"));
    const bool row = o.shape.layout == Layout::row;
    if (t.rows != row || t.width != o.shape.width)
      bad(ErrorKind::type,
          fmt::format("declared {}, and '{}' has {}: expected {}", declared(), name(o.value), spell_extent(t),
                      t.rows                   ? "the extents [M]"
                      : t.width == Width::none ? "the extents []"
                      : t.width == Width::full ? "the extents [N]"
                      : t.width == Width::half ? "the extents [N/2]"
                                               : "the extents [2N]"));
  }

  Program& p_;
  std::vector<ValueId> class_;   ///< union-find over values of half and twice width
  std::vector<ValueId> source_;  ///< of a class: the split or join that gave it its pairing
  std::vector<std::int32_t> steady_;
};

}  // namespace

void infer_types(Program& p) { Typer(p).run(); }

}  // namespace coda::language

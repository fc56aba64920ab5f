// From a checked program to steps over strips: what becomes of values, and where temporaries lie.
#include "cpu/lower.hpp"

#include "cpu/columns.hpp"

namespace coda::cpu {

void Lowering::store(int index, ValueId v, Width width) {
  const Node& n = p_.node(v);
  if (n.op == Op::join && !given_.contains(v) && n.pairing.kind == Pairing::Kind::halves) {
    // Each member goes to its own columns; nothing is put together first.
    const Lay member = n.type.width == Width::twice ? Lay::full : Lay::half_split;
    const std::int64_t half = columns_of(n.type.width, e_.n) / 2;
    for (int i = 0; i < 2; ++i) store_value(index, real(n.args[static_cast<std::size_t>(i)]), member, i * half);
    return;
  }
  const Made m = real(v);
  Type t = n.type;
  t.width = width;
  store_value(index, m, m.lay == Lay::one ? lay_of(t) : m.lay, 0);
}

void Lowering::store_value(int index, const Made& m, Lay lay, std::int64_t shift) {
  Step s;
  s.kind = Step::Kind::store;
  s.index = index;
  s.lay = lay;
  s.shift = shift;
  s.x = filled(m, lay, Level::element).place;
  element_steps.push_back(s);
}

int Lowering::reduce(ValueId v) {
  const Node& n = p_.node(v);
  const bool softmax = n.op == Op::softmax_max || n.op == Op::softmax_sum;
  // One pass makes both statistics of a value.
  const auto key = std::make_pair(softmax ? n.args[0] : v, softmax ? 1 + static_cast<int>(n.over.kind) : 0);
  const auto found = reduction_numbers_.find(key);
  if (found != reduction_numbers_.end()) return found->second;
  const int number = static_cast<int>(reductions.size());
  reduction_numbers_.emplace(key, number);
  const Made x = real(n.args[0]);
  Reduction r;
  r.op = softmax ? Op::softmax_sum : n.op;
  r.over = n.over.kind;
  r.lay = lay_of(p_.node(n.args[0]).type);
  if (n.op == Op::pick) {
    if (n.over.kind == Over::Kind::n) {
      r.indices = arena.rows[static_cast<std::size_t>(value(n.args[1]).place.index)];
    } else {
      // Indices of columns are a tile's own; all of them, to be checked before the first tile, are worked out aside.
      Lowering aside(p_, arena.slots, e_, grid_, true);
      std::int64_t count = 0;
      const std::int32_t* index = aside.words(aside.value(n.args[1]), count);
      r.indices.assign(index, index + count);
    }
    if (n.args[2] != no_value) r.ignored = arena.scalars[static_cast<std::size_t>(value(n.args[2]).place.index)];
  }
  reductions.push_back(r);
  Step s;
  s.kind = Step::Kind::reduce;
  s.index = number;
  s.lay = r.lay;
  s.x = filled(x, r.lay, Level::element).place;
  element_steps.push_back(s);
  return number;
}

void Lowering::complete(ValueId v, std::vector<std::int32_t> words) {
  const Type& t = p_.node(v).type;
  Made m{{}, level_of(t), lay_of(t), ValueKind::real};
  m.place.lay = m.lay;
  switch (m.level) {
    case Level::scalar: m = constant(words.at(0), ValueKind::real); break;
    case Level::row:
      m.place.kind = Place::Kind::row;
      m.place.index = static_cast<int>(arena.rows.size());
      arena.rows.push_back(std::move(words));
      break;
    default:
      m.place.kind = Place::Kind::column;
      m.place.index = static_cast<int>(column_lays.size());
      column_lays.push_back(m.lay);
      arena.columns.push_back(std::move(words));
      break;
  }
  made_[static_cast<std::size_t>(v)] = std::make_unique<Made>(m);
}

const std::int32_t* Lowering::finished(int index, std::int64_t& count) {
  const Output& o = p_.outputs[static_cast<std::size_t>(index)];
  Type t;
  t.rows = o.shape.layout == Layout::row;
  t.width = o.shape.layout == Layout::column ? o.shape.width : Width::none;
  Made m = real(o.value);
  if (m.level != level_of(t)) m = filled(m, m.lay == Lay::one ? lay_of(t) : m.lay, level_of(t));
  return words(m, count);
}

const std::int32_t* Lowering::words(const Made& m, std::int64_t& count) const {
  const Tile whole = grid_.whole();
  Frame f;
  f.arena = &arena;
  f.tile = &whole;
  count = m.level == Level::scalar ? 1 : m.level == Level::row ? e_.m : whole.columns(m.lay).count;
  return reinterpret_cast<const std::int32_t*>(resolve(m.place, f).base);
}

// ---------------------------------------------------------------- temporaries

void Lowering::allocate() {
  std::vector<int> strip_of(temporary_lays.size(), -1);
  std::vector<std::size_t> last(temporary_lays.size());
  for (std::size_t i = 0; i < element_steps.size(); ++i) {
    for (const Place* p : {&element_steps[i].x, &element_steps[i].y, &element_steps[i].z, &element_steps[i].d}) {
      if (p->kind == Place::Kind::temporary) last[static_cast<std::size_t>(p->index)] = i;
    }
  }
  std::vector<Lay> strips;
  std::map<Lay, std::vector<int>> free;
  std::vector<bool> released(temporary_lays.size());
  const auto release = [&](const Place& p, std::size_t at) {
    if (p.kind != Place::Kind::temporary) return;
    const auto t = static_cast<std::size_t>(p.index);
    if (last[t] != at || released[t]) return;
    released[t] = true;
    free[temporary_lays[t]].push_back(strip_of[t]);
  };
  const auto move = [&](Place& p) {
    if (p.kind == Place::Kind::temporary) p.index = strip_of[static_cast<std::size_t>(p.index)];
  };
  for (std::size_t i = 0; i < element_steps.size(); ++i) {
    Step& s = element_steps[i];
    const Step before = s;
    // An element-wise loop may write over its argument; the others move elements about.
    const bool in_place = s.kind == Step::Kind::apply || s.kind == Step::Kind::round;
    const auto release_arguments = [&] {
      for (const Place& p : {before.x, before.y, before.z}) release(p, i);
    };
    if (in_place) release_arguments();
    if (s.d.kind == Place::Kind::temporary) {
      const Lay lay = temporary_lays[static_cast<std::size_t>(s.d.index)];
      int& strip = strip_of[static_cast<std::size_t>(s.d.index)];
      if (free[lay].empty()) {
        strip = static_cast<int>(strips.size());
        strips.push_back(lay);
      } else {
        strip = free[lay].back();
        free[lay].pop_back();
      }
    }
    if (!in_place) release_arguments();
    for (Place* p : {&s.d, &s.x, &s.y, &s.z}) move(*p);
  }
  temporary_lays = std::move(strips);
}

}  // namespace coda::cpu

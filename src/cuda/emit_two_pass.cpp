#include "cuda/emit_two_pass.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "coda/build.hpp"
#include "coda/error.hpp"
#include "cuda/emit_second_pass.hpp"

namespace coda {

std::int64_t Scratch::count(std::int64_t m, std::int64_t n, std::int64_t blocks) const {
  const std::int64_t each = twice_width == 0 ? 1 : n * twice_width / 2 / divisor;
  return floats * each * (of == Of::row ? m : of == Of::block ? blocks : 1);
}

/// Up to four blocks fit on a multiprocessor beside each other and keep its loads in flight.
int TwoPass::blocks(std::int64_t m, int multiprocessors) { return static_cast<int>(std::clamp<std::int64_t>(m, 1, 4 * std::max(1, multiprocessors))); }

std::int64_t TwoPass::scratch_floats(std::int64_t m, std::int64_t n, int blocks) const {
  std::int64_t sum = 0;
  for (const Scratch& s : scratch) sum += s.count(m, n, blocks);
  return sum;
}

Program product_alone(const Program& p) {
  return build("product", [&](Epilogue& e) {
    e.gemm(p.a_dtype, p.b_dtype);
    e.output("product", DType::f32, {epilogue::M, epilogue::N}, e.acc());
  });
}

Tensor product_view(std::int64_t m, std::int64_t n, int device_index) {
  const std::int64_t extents[] = {m, n};
  Tensor t = Tensor::contiguous(nullptr, DType::f32, extents, {DeviceType::cuda, device_index});
  t.stride[0] = product_stride(n);
  return t;
}

Problem product_problem(const Problem& problem) {
  Problem q = problem;
  q.direct = 0;
  q.tile_bytes = 4;
  q.tile_cycles = 0;
  return q;
}

std::string two_pass_name(const Config& product) { return fmt::format("{}_{}", two_pass_prefix, product.name()); }

TwoPass emit_two_pass(const Program& p, const Config& product) {
  TwoPass out;
  out.product = emit(product_alone(p), product);
  emission::SecondPassWriter(p).write(out);
  return out;
}

std::optional<std::string> why_two_pass(const Program& p, const Problem& problem) {
  for (const Output& o : p.outputs) {
    if (!o.finish) continue;
    // The fused kernel finishes rows, columns and the matrix at different times.
    const Type& t = p.node(o.value).type;
    const Over::Kind own = t.rows ? Over::Kind::n : t.width != Width::none ? Over::Kind::m : Over::Kind::mn;
    std::vector<ValueId> todo{o.value};
    while (!todo.empty()) {
      const Node& n = p.node(todo.back());
      todo.pop_back();
      const bool reduction = n.op >= Op::reduce_sum && n.op <= Op::pick;
      if (reduction && n.over.kind != own) return fmt::format("finish '{}' needs reductions over different extents", o.name);
      if (reduction) continue;
      for (ValueId a : n.args)
        if (a != no_value && p.node(a).type.stage == Stage::finish) todo.push_back(a);
    }
  }
  try {
    const Demand d = demand_of(p, problem.direct);
    if (d.pair_run < 0 && d.segment > 0 && problem.n / 2 % d.segment != 0)
      return fmt::format("columns are paired by halves and reduced over segments of {}, which aren't whole in N/2 = {}", d.segment, problem.n / 2);
    if (d.pair_run < 0 && problem.k > 0 && problem.b_major == Major::mn && problem.n / 2 * static_cast<std::int64_t>(size_of(p.b_dtype)) % 16 != 0)
      return fmt::format("columns are paired by halves of an N-major B, and N/2 = {} elements are not a multiple of 16 bytes", problem.n / 2);
    choose(d, problem);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::unsupported) throw;
    return e.what();
  }
  return std::nullopt;
}

}  // namespace coda

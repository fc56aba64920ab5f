// The CPU engine: everything that a program computes in one sweep over its tiles, then its finish expressions.
#include <omp.h>

#include "cpu/memory.hpp"
#include "cpu/outputs.hpp"
#include "cpu/sweep.hpp"
#include "cpu/views.hpp"

namespace coda::cpu {

bool wanted(const Program& p, Slots slots, std::size_t output) {
  const Tensor& t = slots[2 + p.operands.size() + output];
  return t.data != nullptr && t.numel() > 0;
}

std::vector<ValueId> needed_reductions(const Program& p, Slots slots) {
  std::vector<bool> below(p.nodes.size());
  for (std::size_t i = 0; i < p.outputs.size(); ++i) {
    if (p.outputs[i].finish && wanted(p, slots, i)) below[static_cast<std::size_t>(p.outputs[i].value)] = true;
  }
  std::vector<ValueId> reductions;
  // Arguments come before their users: one sweep down reaches everything that finish values are made of.
  for (std::size_t i = p.nodes.size(); i-- > 0;) {
    if (!below[i]) continue;
    const Node& n = p.nodes[i];
    if (n.op >= Op::reduce_sum && n.op <= Op::pick && n.over.kind != Over::Kind::segment) {
      reductions.push_back(static_cast<ValueId>(i));
      continue;
    }
    for (const ValueId a : n.args) {
      if (a != no_value) below[static_cast<std::size_t>(a)] = true;
    }
  }
  return reductions;
}

void finish_outputs(const Program& p, Slots slots, const Extents& e, Results results) {
  const Grid grid(p, e);
  Lowering code(p, slots, e, grid, true);
  for (auto& [node, words] : results) code.complete(node, std::move(words));
  for (std::size_t i = 0; i < p.outputs.size(); ++i) {
    const Output& o = p.outputs[i];
    if (!o.finish || !wanted(p, slots, i)) continue;
    std::int64_t count = 0;
    const auto* x = reinterpret_cast<const float*>(code.finished(static_cast<int>(i), count));
    const Tensor& t = slots[2 + p.operands.size() + i];
    std::vector<float> scratch(static_cast<std::size_t>(count));
    store_run(kernels(), t.dtype, t.data, t.rank == 0 ? 1 : t.stride[0], count, x, o.accumulate, scratch.data());
  }
}

void run(const Program& p, Slots slots, const Options& options) {
  const Extents e = check_arguments(p, slots);
  check_views(p, slots);
  Work work;
  for (std::size_t i = 0; i < p.outputs.size(); ++i) {
    const Output& o = p.outputs[i];
    if (o.finish || !wanted(p, slots, i)) continue;
    work.stores.push_back(
        {o.value, o.shape.width, Target::of(slots[2 + p.operands.size() + i], o.shape.transposed, o.accumulate)});
  }
  work.reductions = needed_reductions(p, slots);
  Sweep sweep(p, slots, e, std::move(work));
  sweep.run(options.threads > 0 ? options.threads : omp_get_max_threads());
  Results results;
  sweep.collect(results);
  finish_outputs(p, slots, e, std::move(results));
}

}  // namespace coda::cpu

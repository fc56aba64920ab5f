// A linear layer: y = x·Wᵀ and its two gradients.
#include "ops/launch.hpp"

namespace coda::ops {

void linear(const Context& context, const Linear& t) {
  launch(context, "linear", {}, {{"A", t.x}, {"B", t.weight}, {"y", t.y}});
}

void linear_backward(const Context& context, const LinearBackward& t) {
  launch(context, "linear", {}, {{"A", t.dy}, {"B", t.weight.transposed()}, {"y", t.dx}});
}

void weight_grad(const Context& context, const WeightGrad& t) {
  launch(context, "weight_grad", {}, {{"A", t.dy.transposed()}, {"B", t.x.transposed()}, {"dw", t.dweight}});
}

}  // namespace coda::ops

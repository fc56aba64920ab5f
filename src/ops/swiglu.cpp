// SwiGLU behind a delayed norm, and its gradient in front of the down projection's.
#include "ops/launch.hpp"

namespace coda::ops {

void linear_norm_swiglu(const Context& context, const LinearNormSwiglu& t) {
  launch(context, "norm_swiglu", {}, {{"A", t.h}, {"B", t.weight}, {"rstd", t.rstd}, {"z", t.z}, {"y", t.y}});
}

void swiglu_backward(const Context& context, const SwigluBackward& t) {
  launch(context, "swiglu_backward", {},
         {{"A", t.dout}, {"B", t.weight.transposed()}, {"z", t.z}, {"dz", t.dz}, {"y", t.y}, {"zdz", t.zdz}});
}

}  // namespace coda::ops

// Product, residual add and RMSNorm's statistic in one; and the gradient of a norm that was delayed past a product.
#include "ops/launch.hpp"

namespace coda::ops {

void linear_residual_norm(const Context& context, const LinearResidualNorm& t) {
  launch(context, "residual_norm", {},
         {{"A", t.a},
          {"B", t.weight},
          {"residual", t.residual},
          {"w", t.norm_weight},
          {"eps", scalar(t.eps)},
          {"x", t.x},
          {"h", t.h},
          {"rstd", t.rstd}});
}

void norm_backward(const Context& context, const NormBackward& t) {
  const ParamValues params = given(t.dresidual) ? ParamValues{} : ParamValues{{"with_residual", 0}};
  launch(context, "norm_backward", params,
         {{"A", t.dz},
          {"B", t.weight.transposed()},
          {"x", t.x},
          {"dresidual", t.dresidual},
          {"w", t.norm_weight},
          {"rstd", t.rstd},
          {"zdz", t.zdz},
          {"dx", t.dx},
          {"h", t.normed},
          {"dw", t.dnorm_weight}});
}

}  // namespace coda::ops

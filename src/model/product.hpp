// Row-major matrix products for the unfused model: the library's in float, plain loops in double.
#pragma once
#include <cstdint>

namespace coda::model {

/// c[m,n] = a[m,k] b[n,k]^T: a layer's forward product.
template <class Real>
void product_nt(std::int64_t m, std::int64_t n, std::int64_t k, const Real* a, const Real* b, Real* c);

/// c[m,n] = a[m,k] b[k,n]: the gradient of its input.
template <class Real>
void product_nn(std::int64_t m, std::int64_t n, std::int64_t k, const Real* a, const Real* b, Real* c);

/// c[m,n] += a[k,m]^T b[k,n]: the gradient of its weight.
template <class Real>
void product_tn_add(std::int64_t m, std::int64_t n, std::int64_t k, const Real* a, const Real* b, Real* c);

}  // namespace coda::model

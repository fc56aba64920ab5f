// Products of the unfused model: see product.hpp.
#include "model/product.hpp"

#include <dnnl.h>

#include <algorithm>

#include "coda/error.hpp"
#include "ops/parallel.hpp"

namespace coda::model {
namespace {

void library_product(char transpose_a, char transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
                     std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c) {
  if (dnnl_sgemm(transpose_a, transpose_b, m, n, k, 1.0f, a, lda, b, ldb, beta, c, n) != dnnl_success) {
    throw Error(ErrorKind::internal, "oneDNN refused a product of the unfused model");
  }
}

/// body(i) for every row of the result.
template <class Body>
void over_rows(std::int64_t m, const Body& body) {
  constexpr std::int64_t chunk = 16;
  ops::parallel_for((m + chunk - 1) / chunk, [&](std::int64_t t) {
    for (std::int64_t i = t * chunk; i < std::min(m, (t + 1) * chunk); ++i) body(i);
  });
}

}  // namespace

template <>
void product_nt(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, const float* b, float* c) {
  library_product('N', 'T', m, n, k, a, k, b, k, 0, c);
}

template <>
void product_nn(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, const float* b, float* c) {
  library_product('N', 'N', m, n, k, a, k, b, n, 0, c);
}

template <>
void product_tn_add(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, const float* b, float* c) {
  library_product('T', 'N', m, n, k, a, m, b, n, 1, c);
}

template <>
void product_nt(std::int64_t m, std::int64_t n, std::int64_t k, const double* a, const double* b, double* c) {
  over_rows(m, [&](std::int64_t i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t x = 0; x < k; ++x) sum += a[i * k + x] * b[j * k + x];
      c[i * n + j] = sum;
    }
  });
}

template <>
void product_nn(std::int64_t m, std::int64_t n, std::int64_t k, const double* a, const double* b, double* c) {
  over_rows(m, [&](std::int64_t i) {
    std::fill_n(c + i * n, n, 0.0);
    for (std::int64_t x = 0; x < k; ++x) {
      for (std::int64_t j = 0; j < n; ++j) c[i * n + j] += a[i * k + x] * b[x * n + j];
    }
  });
}

template <>
void product_tn_add(std::int64_t m, std::int64_t n, std::int64_t k, const double* a, const double* b, double* c) {
  over_rows(m, [&](std::int64_t i) {
    for (std::int64_t x = 0; x < k; ++x) {
      for (std::int64_t j = 0; j < n; ++j) c[i * n + j] += a[x * m + i] * b[x * n + j];
    }
  });
}

}  // namespace coda::model

// Embedding lookup and its gradient: see embedding.hpp.
#include "ops/embedding.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "coda/error.hpp"
#include "ops/parallel.hpp"

namespace coda::ops {

template <class Real>
void embedding(std::int64_t rows, std::int64_t width, std::int64_t vocabulary, const std::int64_t* tokens,
               const Real* table, Real* out) {
  for (std::int64_t i = 0; i < rows; ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocabulary) {
      throw Error(ErrorKind::value, fmt::format("embedding: token {} is {}, expected a number from 0 to {}", i,
                                                tokens[i], vocabulary - 1));
    }
  }
  for (std::int64_t i = 0; i < rows; ++i) std::copy_n(table + tokens[i] * width, width, out + i * width);
}

template <class Real>
void embedding_backward(std::int64_t rows, std::int64_t width, const std::int64_t* tokens, const Real* dout,
                        Real* dtable) {
  // Threads share columns, not rows: each element of the table has one writer and one order of summation.
  constexpr std::int64_t columns = 64;
  parallel_for((width + columns - 1) / columns, [&](std::int64_t c) {
    const std::int64_t first = c * columns, count = std::min(columns, width - first);
    for (std::int64_t i = 0; i < rows; ++i) {
      Real* const to = dtable + tokens[i] * width + first;
      const Real* const from = dout + i * width + first;
      for (std::int64_t j = 0; j < count; ++j) to[j] += from[j];
    }
  });
}

template void embedding(std::int64_t, std::int64_t, std::int64_t, const std::int64_t*, const float*, float*);
template void embedding(std::int64_t, std::int64_t, std::int64_t, const std::int64_t*, const double*, double*);
template void embedding_backward(std::int64_t, std::int64_t, const std::int64_t*, const float*, float*);
template void embedding_backward(std::int64_t, std::int64_t, const std::int64_t*, const double*, double*);

}  // namespace coda::ops

// Embedding lookup and its gradient, on the host.
#pragma once
#include <cstdint>

namespace coda::ops {

/// out[i] = table[tokens[i]], rows of `width`. Throws Error(value) on a token outside [0, vocabulary).
template <class Real>
void embedding(std::int64_t rows, std::int64_t width, std::int64_t vocabulary, const std::int64_t* tokens,
               const Real* table, Real* out);

/// dtable[tokens[i]] += dout[i], in increasing i.
template <class Real>
void embedding_backward(std::int64_t rows, std::int64_t width, const std::int64_t* tokens, const Real* dout,
                        Real* dtable);

}  // namespace coda::ops

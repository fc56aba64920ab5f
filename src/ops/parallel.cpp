// Threads for one loop: see parallel.hpp.
#include "ops/parallel.hpp"

#include <exception>
#include <mutex>

namespace coda::ops {

void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body) {
  std::exception_ptr failure;
  std::mutex mutex;
#pragma omp parallel for schedule(dynamic) if (count > 1)
  for (std::int64_t i = 0; i < count; ++i) {
    try {
      body(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace coda::ops

// Threads for one loop: see parallel.hpp.
#include "ops/parallel.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace coda::ops {
namespace {

std::int64_t processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

}  // namespace

void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body) {
  std::atomic<std::int64_t> next{0};
  std::exception_ptr failure;
  std::mutex mutex;
  const auto work = [&] {
    for (std::int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
      try {
        body(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next.store(count, std::memory_order_relaxed);
      }
    }
  };
  // A thread costs some 20 us to start, little beside the passes this is used for.
  std::vector<std::jthread> threads;
  for (std::int64_t t = 1; t < std::min(processors(), count); ++t) threads.emplace_back(work);
  work();
  threads.clear();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace coda::ops

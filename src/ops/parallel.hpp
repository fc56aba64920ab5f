// Work in parallel on the host.
#pragma once
#include <cstdint>
#include <functional>

namespace coda::ops {

/// Calls body(i) for every i in [0, count), on all processors that this process may use. Which thread runs which i is
/// not fixed, so bodies must write to places of their own; then results don't depend on the number of threads. An
/// exception of a body is thrown again here, after the others have ended. The threads are those that products run on.
void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body);

}  // namespace coda::ops

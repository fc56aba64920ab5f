#include "cuda/workspace.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda/driver.hpp"

namespace coda::cuda {
namespace {

constexpr std::size_t alignment = 256;
std::size_t padded(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

struct Block {
  std::vector<DeviceBuffer> partials, counters;  // the last of each is in use
};

bool fits(const std::vector<DeviceBuffer>& buffers, std::size_t bytes) { return bytes == 0 || (!buffers.empty() && buffers.back().bytes() >= bytes); }

void grow(std::vector<DeviceBuffer>& buffers, int device_index, std::size_t bytes, bool zero) {
  if (fits(buffers, bytes)) return;
  RelaxedCapture relaxed;
  const std::size_t size = std::max({padded(bytes), std::size_t{1} << 16, buffers.empty() ? 0 : 2 * buffers.back().bytes()});
  DeviceBuffer b(device_index, size);
  if (zero) {  // on a stream of its own: the caller's may be under capture
    OwnedStream stream(device_index);
    ContextScope scope(device_index);
    CODA_CUDA(cuMemsetD8Async, b.address(), static_cast<unsigned char>(0), size, static_cast<Stream>(stream));
    CODA_CUDA(cuStreamSynchronize, static_cast<Stream>(stream));
  }
  buffers.push_back(std::move(b));
}

WorkspaceView view(const Block& b) {
  return {b.partials.empty() ? 0 : b.partials.back().address(), b.counters.empty() ? 0 : b.counters.back().address()};
}

}  // namespace

WorkspaceView library_workspace(int device_index, Stream stream, std::size_t partial_bytes, std::size_t counter_bytes) {
  static std::shared_mutex& mutex = *new std::shared_mutex;
  static auto& blocks = *new std::map<std::tuple<int, Stream, std::thread::id>, Block>;
  // CU_STREAM_PER_THREAD names another stream in each thread.
  const bool per_thread = stream == reinterpret_cast<Stream>(2);
  const auto key = std::tuple(device_index, stream, per_thread ? std::this_thread::get_id() : std::thread::id{});
  {
    std::shared_lock lock(mutex);
    if (auto it = blocks.find(key); it != blocks.end() && fits(it->second.partials, partial_bytes) && fits(it->second.counters, counter_bytes))
      return view(it->second);
  }
  std::unique_lock lock(mutex);
  Block& b = blocks[key];
  grow(b.partials, device_index, partial_bytes, false);
  grow(b.counters, device_index, counter_bytes, true);
  return view(b);
}

std::size_t workspace_total(std::size_t partial_bytes, std::size_t counter_bytes) { return padded(counter_bytes) + partial_bytes; }

WorkspaceView view_of_workspace(void* data, std::size_t counter_bytes) {
  const auto base = reinterpret_cast<DevicePointer>(data);
  return {base + padded(counter_bytes), base};
}

}  // namespace coda::cuda

#include "cuda/prepared.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "coda/error.hpp"
#include "cuda/driver.hpp"
#include "cuda/empty_product.hpp"
#include "cuda/tensor_map.hpp"
#include "cuda/workspace.hpp"

namespace coda::cuda {
namespace {

constexpr int max_maps = 2 * max_slots;
constexpr std::size_t max_params = 2048;

// A scalar's value as the kernel takes it: f32, or an integer saturated to 32 bits.
std::uint32_t host_value(const Tensor& t, bool integer) {
  if (integer) {
    const std::int64_t v = t.dtype == DType::i64 ? *t.as<const std::int64_t>() : *t.as<const std::int32_t>();
    const auto clamped = static_cast<std::int32_t>(std::clamp<std::int64_t>(v, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()));
    return static_cast<std::uint32_t>(clamped);
  }
  const auto f = static_cast<float>(load(t, 0));
  std::uint32_t bits;
  std::memcpy(&bits, &f, sizeof bits);
  return bits;
}

// With K = 0 nothing of A and B is read, but a map has to view something: as if K were 1, at any address that is valid.
Tensor one_deep(const Tensor& t, Slots slots) {
  Tensor one = t;
  one.data = reinterpret_cast<void*>(reinterpret_cast<std::uint64_t>(slots.back().data) / 16 * 16);
  one.shape[1] = 1;
  one.stride = {16, 1};
  return one;
}

template <class T> void put(unsigned char* at, T value) { std::memcpy(at, &value, sizeof value); }

}  // namespace

Prepared::Prepared(std::shared_ptr<const Chosen> chosen, const Program& program, Slots slots, std::span<const int> positions, Extents x,
                   int device_index, int multiprocessors)
    : chosen_(std::move(chosen)), device_(device_index) {
  const Emitted& e = chosen_->emitted;
  const auto declared = program.slots();
  if (e.maps.size() > max_maps || static_cast<std::size_t>(e.params_bytes) > max_params)
    throw Error(ErrorKind::internal, fmt::format("kernel {} has {} maps and {} bytes of parameters", e.config.name(), e.maps.size(), e.params_bytes));
  ContextScope scope(device_);  // cuTensorMapEncodeTiled wants a current context
  for (const MapSpec& m : e.maps) {
    const auto slot = static_cast<std::size_t>(m.slot);
    maps_.push_back(encode(m.slot <= 1 && x.k == 0 ? one_deep(slots[slot], slots) : slots[slot], m, declared[slot].name));
  }
  const Emitted::Work work = e.work(x.m, x.n, multiprocessors);
  grid_ = static_cast<unsigned>(work.grid);
  partial_bytes_ = static_cast<std::size_t>(e.workspace_bytes(work));
  counter_bytes_ = static_cast<std::size_t>(e.counter_count(work)) * sizeof(std::uint32_t);

  params_.assign(static_cast<std::size_t>(e.params_bytes), 0);
  for (const Field& f : e.fields) {
    unsigned char* at = params_.data() + f.offset;
    const Tensor* t = f.slot >= 0 ? &slots[static_cast<std::size_t>(f.slot)] : nullptr;
    using enum Field::Kind;
    switch (f.kind) {
      case m: put(at, static_cast<std::int32_t>(x.m)); break;
      case n: put(at, static_cast<std::int32_t>(x.n)); break;
      case k: put(at, static_cast<std::int32_t>(x.k)); break;
      case group: put(at, static_cast<std::int32_t>(chosen_->plan.group)); break;
      case raster: put(at, static_cast<std::int32_t>(chosen_->plan.raster)); break;
      case pointer: put(at, is_host_scalar(*t) ? std::uint64_t{0} : reinterpret_cast<std::uint64_t>(t->data)); break;
      case value:
        if (is_host_scalar(*t)) values_.push_back({positions[static_cast<std::size_t>(f.slot)], f.offset, is_integer(t->dtype)});
        break;
      case extent0: put(at, static_cast<std::int32_t>(std::min<std::int64_t>(t->shape[0], std::numeric_limits<std::int32_t>::max()))); break;
      case extent1: put(at, static_cast<std::int32_t>(std::min<std::int64_t>(t->shape[1], std::numeric_limits<std::int32_t>::max()))); break;
      case stride0: put(at, t->stride[0]); break;
      case stride1: put(at, t->stride[1]); break;
      case split_from: put(at, static_cast<std::int32_t>(work.split_from)); break;
      case partials: partials_offset_ = f.offset; break;
      case counters: counters_offset_ = f.offset; break;
    }
  }
}

std::size_t Prepared::workspace_bytes() const { return partial_bytes_ + counter_bytes_ == 0 ? 0 : workspace_total(partial_bytes_, counter_bytes_); }

void Prepared::enqueue(Slots slots, Stream stream, const Workspace& workspace, bool overlap) const {
  if (!chosen_) {
    std::vector<Tensor> own;
    for (int i : positions_) own.push_back(slots[static_cast<std::size_t>(i)]);
    if (empty_) run_empty_product(*empty_, own, device_, stream);
    return;
  }
  ContextScope scope(device_);
  alignas(16) unsigned char params[max_params];
  std::memcpy(params, params_.data(), params_.size());
  for (const HostValue& v : values_) put(params + v.offset, host_value(slots[static_cast<std::size_t>(v.position)], v.integer));
  if (const std::size_t needed = workspace_bytes(); needed > 0) {
    WorkspaceView w;
    if (workspace.data) {
      if (workspace.bytes < needed || reinterpret_cast<std::uint64_t>(workspace.data) % 256 != 0)
        throw Error(ErrorKind::value, fmt::format("the workspace has {} bytes at {}; this launch needs {} bytes, 256-byte aligned: ask Kernel::workspace_bytes()",
                                                  workspace.bytes, fmt::ptr(workspace.data), needed));
      w = view_of_workspace(workspace.data, counter_bytes_);
    } else {
      w = library_workspace(device_, stream, partial_bytes_, counter_bytes_);
    }
    if (partials_offset_ >= 0) put(params + partials_offset_, w.partials);
    if (counters_offset_ >= 0) put(params + counters_offset_, w.counters);
  }
  void* arguments[max_maps + 1];
  std::size_t count = 0;
  for (const TensorMap& m : maps_) arguments[count++] = const_cast<TensorMap*>(&m);
  arguments[count] = params;
  LaunchAttribute attribute{attribute_programmatic_stream_serialization, 0, {1}};
  const LaunchConfig config{grid_, 1, 1, static_cast<unsigned>(chosen_->emitted.threads), 1, 1, static_cast<unsigned>(chosen_->emitted.shared_bytes),
                            stream, &attribute, overlap ? 1u : 0u};
  CODA_CUDA(cuLaunchKernelEx, &config, chosen_->loaded.function, arguments, nullptr);
}

}  // namespace coda::cuda

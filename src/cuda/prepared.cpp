#include "cuda/prepared.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "coda/error.hpp"
#include "cuda/driver.hpp"
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

Prepared::Step Prepared::step_of(const Emitted& e, const LoadedKernel& loaded, const std::vector<Slot>& declared, Slots slots,
                                 std::span<const int> positions, Extents x, const Emitted::Work& work, bool into_workspace) const {
  if (e.maps.size() > max_maps || static_cast<std::size_t>(e.params_bytes) > max_params)
    throw Error(ErrorKind::internal, fmt::format("kernel {} has {} maps and {} bytes of parameters", e.entry, e.maps.size(), e.params_bytes));
  Step step{.function = loaded.function,
            .grid = static_cast<unsigned>(work.grid),
            .threads = static_cast<unsigned>(e.threads),
            .shared_bytes = static_cast<unsigned>(e.shared_bytes),
            .maps = {},
            .params = std::vector<unsigned char>(static_cast<std::size_t>(e.params_bytes), 0),
            .values = {},
            .product_map = {}};
  for (const MapSpec& m : e.maps) {
    const auto slot = static_cast<std::size_t>(m.slot);
    if (into_workspace && slot == 2) step.product_map = m;  // its address is known when a workspace is
    else step.maps.push_back(encode(m.slot <= 1 && x.k == 0 ? one_deep(slots[slot], slots) : slots[slot], m, declared[slot].name));
  }
  for (const Field& f : e.fields) {
    unsigned char* at = step.params.data() + f.offset;
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
        if (is_host_scalar(*t)) step.values.push_back({positions[static_cast<std::size_t>(f.slot)], f.offset, is_integer(t->dtype)});
        break;
      case extent0: put(at, static_cast<std::int32_t>(std::min<std::int64_t>(t->shape[0], std::numeric_limits<std::int32_t>::max()))); break;
      case extent1: put(at, static_cast<std::int32_t>(std::min<std::int64_t>(t->shape[1], std::numeric_limits<std::int32_t>::max()))); break;
      case stride0: put(at, t->stride[0]); break;
      case stride1: put(at, t->stride[1]); break;
      case split_from: put(at, static_cast<std::int32_t>(work.split_from)); break;
      case partials: step.partials_offset = f.offset; break;
      case counters: step.counters_offset = f.offset; break;
      case product: step.product_offset = f.offset; break;
    }
  }
  return step;
}

Prepared::Prepared(std::shared_ptr<const Chosen> chosen, const Program& program, Slots slots, std::span<const int> positions, Extents x,
                   int device_index, int multiprocessors)
    : chosen_(std::move(chosen)), device_(device_index) {
  const Emitted& e = chosen_->emitted;
  const auto declared = program.slots();
  ContextScope scope(device_);  // cuTensorMapEncodeTiled wants a current context
  const auto& two = chosen_->two_pass;
  if (!two || (x.m > 0 && x.n > 0)) {  // of an empty product the second pass reads nothing
    const Emitted::Work work = e.work(x.m, x.n, multiprocessors);
    steps_.push_back(step_of(e, chosen_->loaded, declared, slots, positions, x, work, two.has_value()));
    partial_bytes_ = static_cast<std::size_t>(e.workspace_bytes(work));
    counter_bytes_ = static_cast<std::size_t>(e.counter_count(work)) * sizeof(std::uint32_t);
  }
  if (!two) return;
  const auto aligned = [](std::size_t bytes) { return (bytes + 255) / 256 * 256; };
  const Emitted::Work work{.m = x.m, .n = x.n, .grid = TwoPass::blocks(x.m, multiprocessors)};
  Step second = step_of(two->epilogue, chosen_->second, declared, slots, positions, x, work, false);
  product_at_ = aligned(partial_bytes_);
  product_ = product_view(x.m, x.n, device_);
  second.partials_at = aligned(product_at_ + static_cast<std::size_t>(x.m * product_stride(x.n)) * sizeof(float));
  second.counters_at = counter_bytes_;
  partial_bytes_ = second.partials_at + static_cast<std::size_t>(two->scratch_floats(x.m, x.n, work.grid)) * sizeof(float);
  if (two->completes) counter_bytes_ += sizeof(std::uint32_t);
  steps_.push_back(std::move(second));
}

std::size_t Prepared::workspace_bytes() const { return partial_bytes_ + counter_bytes_ == 0 ? 0 : workspace_total(partial_bytes_, counter_bytes_); }

void Prepared::enqueue(Slots slots, Stream stream, const Workspace& workspace, bool overlap) const {
  if (!chosen_) return;
  ContextScope scope(device_);
  WorkspaceView w;
  if (const std::size_t needed = workspace_bytes(); needed > 0) {
    if (workspace.data) {
      if (workspace.bytes < needed || reinterpret_cast<std::uint64_t>(workspace.data) % 256 != 0)
        throw Error(ErrorKind::value, fmt::format("the workspace has {} bytes at {}; this launch needs {} bytes, 256-byte aligned: ask Kernel::workspace_bytes()",
                                                  workspace.bytes, fmt::ptr(workspace.data), needed));
      w = view_of_workspace(workspace.data, counter_bytes_);
    } else {
      w = library_workspace(device_, stream, partial_bytes_, counter_bytes_);
    }
  }
  for (const Step& step : steps_) {
    alignas(16) unsigned char params[max_params];
    std::memcpy(params, step.params.data(), step.params.size());
    for (const HostValue& v : step.values) put(params + v.offset, host_value(slots[static_cast<std::size_t>(v.position)], v.integer));
    if (step.partials_offset >= 0) put(params + step.partials_offset, w.partials + step.partials_at);
    if (step.counters_offset >= 0) put(params + step.counters_offset, w.counters + step.counters_at);
    if (step.product_offset >= 0) put(params + step.product_offset, w.partials + product_at_);
    void* arguments[max_maps + 1];
    std::size_t count = 0;
    for (const TensorMap& m : step.maps) arguments[count++] = const_cast<TensorMap*>(&m);
    TensorMap product_map;
    if (step.product_map) {
      Tensor product = product_;
      product.data = reinterpret_cast<void*>(w.partials + product_at_);
      product_map = encode(product, *step.product_map, "product");
      arguments[count++] = &product_map;
    }
    arguments[count] = params;
    LaunchAttribute attribute{attribute_programmatic_stream_serialization, 0, {1}};
    const LaunchConfig config{step.grid, 1, 1, step.threads, 1, 1, step.shared_bytes, stream, &attribute, overlap ? 1u : 0u};
    CODA_CUDA(cuLaunchKernelEx, &config, step.function, arguments, nullptr);
  }
}

}  // namespace coda::cuda

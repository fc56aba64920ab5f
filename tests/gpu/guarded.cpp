#include "guarded.hpp"

#include <fmt/format.h>

#include <cstring>

namespace coda::test {
namespace {

constexpr std::size_t guard = 1024;

HostTensor copy_of(const Tensor& t) {
  HostTensor h(t.dtype, std::span(t.shape.data(), static_cast<std::size_t>(t.rank)));
  std::memcpy(h.view().data, t.data, static_cast<std::size_t>(t.numel()) * size_of(t.dtype));
  return h;
}

}  // namespace

Guarded::Guarded(const Tensor& logical, Placement p, bool blank, int device) : logical_(copy_of(logical)) {
  const std::size_t size = size_of(logical.dtype);
  view_ = logical;
  view_.device = {DeviceType::cuda, device};
  // Strides: the contiguous dimension first, then the other with its padding.
  std::int64_t stride = p.step;
  for (int k = 0; k < view_.rank; ++k) {
    const auto d = static_cast<std::size_t>(p.transposed ? k : view_.rank - 1 - k);
    view_.stride[d] = stride;
    stride = stride * std::max<std::int64_t>(view_.shape[d], 1) + p.padding;
  }
  if (p.broadcast && view_.rank > 0) view_.stride[0] = 0;
  std::int64_t last = 0;
  for (std::size_t d = 0; d < static_cast<std::size_t>(view_.rank); ++d) last += std::max<std::int64_t>(view_.shape[d] - 1, 0) * view_.stride[d];
  start_ = guard + static_cast<std::size_t>(p.offset) * size;
  image_.assign(start_ + static_cast<std::size_t>(last + 1) * size + guard, 0xff);
  mine_.assign(image_.size(), false);
  const auto* bytes = static_cast<const std::uint8_t*>(logical_.view().data);
  for (std::int64_t i = 0; i < logical.numel(); ++i) {
    const std::size_t at = byte_of(i);
    for (std::size_t b = 0; b < size; ++b) mine_[at + b] = true;
    if (!blank && !(p.broadcast && view_.rank > 0 && i >= logical.numel() / view_.shape[0])) std::memcpy(&image_[at], bytes + static_cast<std::size_t>(i) * size, size);
  }
  buffer_ = cuda::DeviceBuffer(device, image_.size());
  view_.data = static_cast<char*>(buffer_.data()) + start_;
  reset();
}

std::size_t Guarded::byte_of(std::int64_t i) const {
  std::int64_t at = 0;
  for (int d = view_.rank - 1; d >= 0; --d) {
    const auto k = static_cast<std::size_t>(d);
    at += i % view_.shape[k] * view_.stride[k];
    i /= view_.shape[k];
  }
  return start_ + static_cast<std::size_t>(at) * size_of(view_.dtype);
}

void Guarded::reset() { upload(buffer_.address(), image_.data(), image_.size(), buffer_.device_index()); }

void Guarded::assign(const Tensor& logical) {
  const HostTensor same_type(view_.dtype, std::span(view_.shape.data(), static_cast<std::size_t>(view_.rank)));
  const std::size_t size = size_of(view_.dtype);
  for (std::int64_t i = 0; i < view_.numel(); ++i) {
    store(same_type, i, load(logical, i));
    std::memcpy(&image_[byte_of(i)], static_cast<const char*>(same_type.view().data) + static_cast<std::size_t>(i) * size, size);
  }
  reset();
}

std::vector<std::uint8_t> Guarded::memory() const {
  std::vector<std::uint8_t> bytes(image_.size());
  test::download(bytes.data(), buffer_.address(), bytes.size(), buffer_.device_index());
  return bytes;
}

HostTensor Guarded::download() const {
  const auto bytes = memory();
  HostTensor out(view_.dtype, std::span(view_.shape.data(), static_cast<std::size_t>(view_.rank)));
  const std::size_t size = size_of(view_.dtype);
  for (std::int64_t i = 0; i < view_.numel(); ++i) std::memcpy(static_cast<char*>(out.view().data) + static_cast<std::size_t>(i) * size, &bytes[byte_of(i)], size);
  return out;
}

std::string Guarded::changed(bool elements) const {
  const auto bytes = memory();
  std::size_t count = 0, first = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] != image_[i] && (elements || !mine_[i]) && count++ == 0) first = i;
  if (count == 0) return {};
  return fmt::format("{} bytes changed that should not have, the first {} bytes from the first element of {}", count,
                     static_cast<long long>(first) - static_cast<long long>(start_), describe(view_));
}

void upload(cuda::DevicePointer to, const void* from, std::size_t bytes, int device) {
  if (bytes == 0) return;
  cuda::ContextScope scope(device);
  CODA_CUDA(cuMemcpyHtoDAsync, to, from, bytes, nullptr);
  CODA_CUDA(cuCtxSynchronize);
}

void download(void* to, cuda::DevicePointer from, std::size_t bytes, int device) {
  if (bytes == 0) return;
  cuda::ContextScope scope(device);
  CODA_CUDA(cuCtxSynchronize);
  CODA_CUDA(cuMemcpyDtoHAsync, to, from, bytes, nullptr);
  CODA_CUDA(cuCtxSynchronize);
}

void synchronize(int device) {
  cuda::ContextScope scope(device);
  CODA_CUDA(cuCtxSynchronize);
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype == b.dtype && a.numel() == b.numel() && std::memcmp(a.data, b.data, static_cast<std::size_t>(a.numel()) * size_of(a.dtype)) == 0;
}

}  // namespace coda::test

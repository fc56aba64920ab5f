// A tensor view: what every engine takes. It owns nothing; DLPack's DLTensor maps onto it field by field.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "coda/dtype.hpp"

namespace coda {

enum class DeviceType : std::uint8_t { cpu, cuda };

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

/// A strided view of memory. Strides count elements and may be 0 (broadcast) or in any order, never negative.
/// A scalar has rank 0. `data` may be null when an extent is 0.
struct Tensor {
  static constexpr int max_rank = 4;

  void* data = nullptr;
  DType dtype = DType::f32;
  Device device;
  int rank = 0;
  std::array<std::int64_t, max_rank> shape{};
  std::array<std::int64_t, max_rank> stride{};

  /// A row-major contiguous view.
  static Tensor contiguous(void* data, DType dtype, std::span<const std::int64_t> shape, Device device = {});

  /// Number of elements (1 for a scalar).
  std::int64_t numel() const;
  /// The view of a matrix with its two dimensions exchanged; no data moves.
  Tensor transposed() const;
  template <class T> T* as() const { return static_cast<T*>(data); }
};

/// Host memory with a view on it: 64-byte aligned, row-major, filled with zero bytes.
class HostTensor {
 public:
  HostTensor() = default;
  /// Throws Error(shape) on a negative or overflowing extent, std::bad_alloc when memory is short.
  HostTensor(DType dtype, std::span<const std::int64_t> shape);
  HostTensor(DType dtype, std::initializer_list<std::int64_t> shape)
      : HostTensor(dtype, std::span<const std::int64_t>(shape.begin(), shape.size())) {}

  const Tensor& view() const { return view_; }
  operator const Tensor&() const { return view_; }
  std::int64_t numel() const { return view_.numel(); }
  template <class T> T* as() const { return view_.as<T>(); }

 private:
  struct Free { void operator()(void* p) const; };
  std::unique_ptr<void, Free> memory_;
  Tensor view_;
};

/// Element i (row-major logical order over the view) as a double, and the reverse, rounding once to the view's
/// dtype (round to nearest even; fp8 saturates). Slow and plain: for tests, checks and printing.
double load(const Tensor& t, std::int64_t i);
void store(const Tensor& t, std::int64_t i, double value);

/// "bf16[512, 2048]", with strides where they aren't row-major: for messages.
std::string describe(const Tensor& t);

}  // namespace coda

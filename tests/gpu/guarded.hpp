// Tensors in guarded device memory: the elements lie between bands and gaps of 0xff bytes, which are NaN in every float
// type. A kernel that reads beside its operands meets NaN; one that writes beside its outputs is found out.
#pragma once
#include <string>
#include <vector>

#include "coda/tensor.hpp"
#include "cuda/driver.hpp"

namespace coda::test {

/// How a logical tensor lies in memory.
struct Placement {
  bool transposed = false;        ///< the first dimension is the contiguous one
  std::int64_t padding = 0;       ///< elements between rows
  std::int64_t offset = 0;        ///< elements before the first, past a 256-byte boundary
  std::int64_t step = 1;          ///< stride of the contiguous dimension
  bool broadcast = false;         ///< stride 0 along the first dimension (its first entry is used)
};

class Guarded {
 public:
  /// `logical` is what the tensor holds; with `blank` the elements are poison too (an output that is written whole).
  Guarded(const Tensor& logical, Placement placement, bool blank, int device = 0);

  const Tensor& view() const { return view_; }
  /// Puts the first contents back, or those of the last assign().
  void reset();
  /// Gives the elements other values: those of a host tensor.
  void assign(const Tensor& logical);
  /// The elements, as a row-major host tensor.
  HostTensor download() const;
  /// Empty where every byte that belongs to no element (with `elements`: any byte) is as it was; else what changed.
  std::string changed(bool elements) const;

 private:
  std::vector<std::uint8_t> memory() const;
  std::size_t byte_of(std::int64_t i) const;
  HostTensor logical_;
  Tensor view_;
  std::vector<std::uint8_t> image_;
  std::vector<bool> mine_;
  std::size_t start_ = 0;
  cuda::DeviceBuffer buffer_;
};

/// Copies that wait: tests are in no hurry.
void upload(cuda::DevicePointer to, const void* from, std::size_t bytes, int device = 0);
void download(void* to, cuda::DevicePointer from, std::size_t bytes, int device = 0);
void synchronize(int device = 0);

/// The same bits, element by element.
bool same_bits(const Tensor& a, const Tensor& b);

}  // namespace coda::test

// One operand set of a bench case: device tensors for our program, for cuBLAS, and for the unfused sequence.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coda/kernel.hpp"
#include "coda/program.hpp"
#include "cuda/bench/bench.hpp"
#include "cuda/bench/cublaslt.hpp"
#include "cuda/bench/passes.hpp"

namespace coda::cuda {

class Operands {
 public:
  virtual ~Operands() = default;

  const std::vector<Tensor>& slots() const { return slots_; }
  void* a() const { return slots_[0].data; }
  void* b() const { return slots_[1].data; }
  void* product() const { return product_.data(); }  ///< cuBLAS's plain output, of A's type

  /// Can the unfused sequence of this program be timed? (The plain product's "sequence" is the product.)
  virtual bool has_unfused() const = 0;
  /// The unfused sequence, into outputs of its own.
  virtual void enqueue_unfused(const CublasLt& plain, const CublasLt* accumulating, Stream stream) const = 0;
  /// Fills our outputs with NaN (accumulating ones: puts the same start into both sides).
  void poison(Stream stream);
  /// Worst relative difference between our outputs and the unfused sequence's; `name` says of which. Waits.
  double difference(std::string& name) const;

 protected:
  Operands(const BenchCase& what, const Program& program, const Passes& passes, int device_index)
      : what_(what), program_(program), passes_(passes), device_(device_index) {}
  /// Device memory of its own for a tensor, added to the slots; its data are the caller's to fill.
  const Tensor& add_slot(Tensor t);
  /// ... and for an output of the unfused sequence.
  void add_unfused(const Slot& output, const Tensor& like);
  void* unfused(std::string_view output) const { return unfused_.find(output)->second.data(); }

  const BenchCase& what_;
  const Program& program_;
  const Passes& passes_;
  int device_;
  std::vector<Tensor> slots_;
  std::vector<DeviceBuffer> memory_;
  std::vector<HostTensor> host_;  // scalar operands
  std::map<std::string, DeviceBuffer, std::less<>> unfused_;
  DeviceBuffer product_;
};

/// The speed table's: bf16, filled on the GPU, with the hand-written passes of passes.cpp.
class TableOperands : public Operands {
 public:
  TableOperands(const BenchCase& what, const Program& program, const Passes& passes, int device_index, std::uint32_t seed);
  bool has_unfused() const override;
  void enqueue_unfused(const CublasLt& plain, const CublasLt* accumulating, Stream stream) const override;

 private:
  const void* data(std::string_view name) const;
};

/// Any program's, filled as make_inputs() does. Its unfused sequence is the stored product and one pass of our own: the
/// same epilogue on tiles of that product.
class OwnOperands : public Operands {
 public:
  /// With `like`, its numbers in other memory.
  OwnOperands(const BenchCase& what, const Program& program, const Passes& passes, int device_index, const OwnOperands* like = nullptr);
  bool has_unfused() const override { return pass_ != nullptr; }
  void enqueue_unfused(const CublasLt& plain, const CublasLt* accumulating, Stream stream) const override;

 private:
  std::shared_ptr<const Kernel> pass_;
  std::vector<Tensor> pass_slots_;
};

/// `p` as one pass over its stored product: acc is read from an operand of A's type, the first, called `product` or, if
/// that name is taken, something longer. To be run with K = 0.
Program pass_over_product(const Program& p);

}  // namespace coda::cuda

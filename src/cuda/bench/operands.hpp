// One operand set of a bench case: device tensors for our program, for cuBLAS, and for the unfused sequence.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "coda/program.hpp"
#include "cuda/bench/bench.hpp"
#include "cuda/bench/cublaslt.hpp"
#include "cuda/bench/passes.hpp"

namespace coda::cuda {

class OperandSet {
 public:
  OperandSet(const BenchCase& what, const Program& program, const Passes& passes, int device_index, std::uint32_t seed);

  const std::vector<Tensor>& slots() const { return slots_; }
  void* a() const { return slots_[0].data; }
  void* b() const { return slots_[1].data; }
  void* product() const { return product_.data(); }  ///< cuBLAS's plain bf16 output

  /// The unfused sequence, into outputs of its own.
  void enqueue_unfused(const CublasLt& plain, const CublasLt* accumulating, Stream stream) const;
  /// Fills our outputs with NaN (accumulating ones: puts the same start into both sides).
  void poison(Stream stream);
  /// Worst relative difference between our outputs and the unfused sequence's; `name` says of which. Waits.
  double difference(std::string& name) const;

 private:
  void* unfused(const std::string& output) const { return unfused_.at(output).data(); }
  const void* data(std::string_view name) const;
  const BenchCase& what_;
  const Program& program_;
  const Passes& passes_;
  int device_;
  std::vector<Tensor> slots_;
  std::vector<DeviceBuffer> memory_;
  std::vector<HostTensor> host_;  // scalar operands
  std::map<std::string, DeviceBuffer> unfused_;
  DeviceBuffer product_;
};

/// Can the unfused sequence of this program be timed? (The plain product's "sequence" is the product.)
bool has_unfused(const std::string& program);

}  // namespace coda::cuda

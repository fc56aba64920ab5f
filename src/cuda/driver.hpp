// The CUDA driver, opened on first use: its function table, its errors as coda::Error, and owners of its objects.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "coda/tensor.hpp"
#include "cuda/driver_types.hpp"

namespace coda::cuda {

/// The driver's functions, under their names in cuda.h.
struct Driver {
  Result (*cuInit)(unsigned);
  Result (*cuDriverGetVersion)(int*);
  Result (*cuGetErrorName)(Result, const char**);
  Result (*cuGetErrorString)(Result, const char**);
  Result (*cuDeviceGetCount)(int*);
  Result (*cuDeviceGet)(DeviceOrdinal*, int);
  Result (*cuDeviceGetName)(char*, int, DeviceOrdinal);
  Result (*cuDeviceGetAttribute)(int*, DeviceAttribute, DeviceOrdinal);
  Result (*cuDevicePrimaryCtxRetain)(Context*, DeviceOrdinal);
  Result (*cuCtxGetCurrent)(Context*);
  Result (*cuCtxPushCurrent)(Context);
  Result (*cuCtxPopCurrent)(Context*);
  Result (*cuCtxSynchronize)();
  Result (*cuModuleLoadData)(Module*, const void*);
  Result (*cuModuleUnload)(Module);
  Result (*cuModuleGetFunction)(Function*, Module, const char*);
  Result (*cuFuncGetAttribute)(int*, FunctionAttribute, Function);
  Result (*cuFuncSetAttribute)(Function, FunctionAttribute, int);
  Result (*cuLaunchKernelEx)(const LaunchConfig*, Function, void**, void**);
  Result (*cuTensorMapEncodeTiled)(TensorMap*, TensorMapType, std::uint32_t, void*, const std::uint64_t*, const std::uint64_t*,
                                   const std::uint32_t*, const std::uint32_t*, int, TensorMapSwizzle, TensorMapPromotion, int);
  Result (*cuMemAlloc)(DevicePointer*, std::size_t);
  Result (*cuMemFree)(DevicePointer);
  Result (*cuMemGetInfo)(std::size_t*, std::size_t*);
  Result (*cuMemcpyAsync)(DevicePointer, DevicePointer, std::size_t, Stream);
  Result (*cuMemcpyHtoDAsync)(DevicePointer, const void*, std::size_t, Stream);
  Result (*cuMemcpyDtoHAsync)(void*, DevicePointer, std::size_t, Stream);
  Result (*cuMemsetD8Async)(DevicePointer, unsigned char, std::size_t, Stream);
  Result (*cuMemsetD32Async)(DevicePointer, unsigned, std::size_t, Stream);
  Result (*cuStreamCreate)(Stream*, unsigned);
  Result (*cuStreamDestroy)(Stream);
  Result (*cuStreamSynchronize)(Stream);
  Result (*cuStreamWaitEvent)(Stream, Event, unsigned);
  Result (*cuStreamIsCapturing)(Stream, CaptureStatus*);
  Result (*cuStreamBeginCapture)(Stream, int);
  Result (*cuStreamEndCapture)(Stream, Graph*);
  Result (*cuThreadExchangeStreamCaptureMode)(int*);
  Result (*cuGraphInstantiateWithFlags)(GraphExec*, Graph, unsigned long long);
  Result (*cuGraphLaunch)(GraphExec, Stream);
  Result (*cuGraphExecDestroy)(GraphExec);
  Result (*cuGraphDestroy)(Graph);
  Result (*cuEventCreate)(Event*, unsigned);
  Result (*cuEventRecord)(Event, Stream);
  Result (*cuEventQuery)(Event);
  Result (*cuEventSynchronize)(Event);
  Result (*cuEventElapsedTime)(float*, Event, Event);
  Result (*cuEventDestroy)(Event);
};

/// Opens libcuda.so.1 and initialises it on the first call; later calls cost a load. Throws Error(unsupported) where the
/// library is missing and Error(device) where it can't start; a failed first call is tried again by the next.
const Driver& driver();

/// True where the driver starts and sees at least one device; never throws.
bool available() noexcept;

/// Throws Error(device): "<call> failed: <name>, <string>" unless `r` is success.
void check(Result r, const char* call);
[[noreturn]] void fail(Result r, const char* call);

/// `CODA_CUDA(cuMemAlloc, &p, n)` calls the driver and reports a failure under the function's name.
#define CODA_CUDA(function, ...) ::coda::cuda::check(::coda::cuda::driver().function(__VA_ARGS__), #function)

/// What plans and reports need of one GPU.
struct DeviceInfo {
  int index = 0;
  std::string name;
  int major = 0, minor = 0, multiprocessors = 0, l2_bytes = 0, shared_bytes = 0;
  int driver_version = 0;  ///< 13000 for CUDA 13.0
};

int device_count();
/// Read once a device. Throws Error(value) for an index that doesn't exist.
const DeviceInfo& device_info(int index);
/// Throws Error(unsupported) unless the device has compute capability 9.0.
void require_hopper(const DeviceInfo& device);

/// The device's primary context, retained for the life of the process.
Context primary_context(int index);

/// Makes the device's primary context current for a scope; costs one driver call where it already is.
class ContextScope {
 public:
  explicit ContextScope(int device_index);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  bool pushed_ = false;
};

/// Allocating, loading modules and waiting on a stream of one's own are forbidden to a thread while any stream is captured
/// in the default mode, unless it says that it knows. This says so for a scope.
class RelaxedCapture {
 public:
  RelaxedCapture();
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  int mode_ = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED; afterwards what it was
};

/// Device memory from cuMemAlloc (256-byte aligned), freed with its owner.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(int device_index, std::size_t bytes);
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  DevicePointer address() const { return address_; }
  void* data() const { return reinterpret_cast<void*>(address_); }
  std::size_t bytes() const { return bytes_; }
  int device_index() const { return device_; }

 private:
  DevicePointer address_ = 0;
  std::size_t bytes_ = 0;
  int device_ = 0;
};

/// A non-blocking stream of its own.
class OwnedStream {
 public:
  explicit OwnedStream(int device_index);
  ~OwnedStream();
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;
  operator Stream() const { return stream_; }

 private:
  int device_;
  Stream stream_ = nullptr;
};

/// A timing event.
class OwnedEvent {
 public:
  explicit OwnedEvent(int device_index);
  ~OwnedEvent();
  OwnedEvent(OwnedEvent&& other) noexcept;
  OwnedEvent(const OwnedEvent&) = delete;
  OwnedEvent& operator=(const OwnedEvent&) = delete;
  operator Event() const { return event_; }

 private:
  int device_;
  Event event_ = nullptr;
};

}  // namespace coda::cuda

// Safetensors files: named tensors as Hugging Face stores them.
//
// A file is an 8-byte little-endian header length, a JSON header {name: {dtype, shape, data_offsets}} with an optional
// "__metadata__" map of strings, then the tensors' bytes, row-major and without holes.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coda/tensor.hpp"

namespace coda {

/// What the header says of one tensor.
struct SafetensorsEntry {
  std::string name;
  std::string dtype_name;      ///< as the file spells it: "F32", "BF16", "F8_E4M3", ...
  std::optional<DType> dtype;  ///< empty for a type of the format that this library has no use for ("U8", "BOOL", ...)
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  ///< byte range after the header
};

/// A safetensors file opened for reading. The whole header is checked when it is opened: names, types, shapes, byte
/// ranges that neither overlap, leave holes nor pass the end of the file. Tensors are read when asked for.
class SafetensorsFile {
 public:
  /// Throws Error(io) when the file can't be read or isn't a well-formed safetensors file.
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  const std::string& path() const { return path_; }
  /// In the order of their bytes in the file.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// Null when the file has no tensor of that name.
  const SafetensorsEntry* find(std::string_view name) const;

  /// A copy of the tensor's data. Throws Error(io) when the name is absent (the message lists near names) or the read
  /// fails, Error(unsupported) when the type or the rank has no counterpart here.
  HostTensor read(std::string_view name) const;
  /// Reads into `out` (row-major contiguous), whose dtype and shape must be the file's: Error(dtype) or Error(shape).
  void read_into(std::string_view name, const Tensor& out) const;

 private:
  const SafetensorsEntry& require(std::string_view name) const;
  void read_bytes(const SafetensorsEntry& entry, void* out) const;

  std::string path_;
  int fd_ = -1;
  std::uint64_t data_start_ = 0;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, std::size_t, std::less<>> index_;
  std::map<std::string, std::string> metadata_;
};

/// A tensor to be written. Any strides: it is stored row-major.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// Writes `path` whole or not at all: the bytes go to a temporary file beside it, are synced, and take the name in one
/// step, so that a full disk or a crash leaves a previous file as it was. Throws Error(io) when writing fails,
/// Error(value) on a duplicate or reserved name, Error(device) on a tensor that isn't in host memory.
void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace coda

// Reading and writing safetensors files: see include/coda/safetensors.hpp.
#include "coda/safetensors.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "coda/error.hpp"
#include "io/atomic_file.hpp"
#include "io/safetensors_header.hpp"

static_assert(std::endian::native == std::endian::little, "tensors are stored little-endian, as they lie in memory");

namespace coda {
namespace {

/// Reads `bytes` at `offset`, by positioned reads rather than a mapping: a file that another process shortens gives an
/// error instead of SIGBUS, and the copy has the alignment the engines want.
void read_at(int fd, std::uint64_t offset, void* out, std::uint64_t bytes, const std::string& path) {
  char* p = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t n =
        ::pread(fd, p, std::min<std::uint64_t>(bytes, std::uint64_t{1} << 30), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error(ErrorKind::io, fmt::format("cannot read {}: {}", path, std::strerror(errno)));
    if (n == 0) throw Error(ErrorKind::io, fmt::format("{}: the file became shorter while it was read", path));
    p += n;
    offset += static_cast<std::uint64_t>(n);
    bytes -= static_cast<std::uint64_t>(n);
  }
}

bool is_row_major(const Tensor& t) {
  std::int64_t expected = 1;
  for (int d = t.rank - 1; d >= 0; --d) {
    if (t.shape[d] != 1 && t.stride[d] != expected) return false;
    expected *= t.shape[d];
  }
  return true;
}

std::vector<std::int64_t> shape_of(const Tensor& t) { return {t.shape.begin(), t.shape.begin() + t.rank}; }

/// The bytes of a strided tensor in row-major order.
std::vector<char> gathered(const Tensor& t) {
  const std::size_t size = size_of(t.dtype);
  std::vector<char> out(static_cast<std::size_t>(t.numel()) * size);
  std::array<std::int64_t, Tensor::max_rank> at{};
  for (char* p = out.data(); p != out.data() + out.size(); p += size) {
    std::int64_t offset = 0;
    for (int d = 0; d < t.rank; ++d) offset += at[d] * t.stride[d];
    std::memcpy(p, static_cast<const char*>(t.data) + offset * static_cast<std::int64_t>(size), size);
    for (int d = t.rank - 1; d >= 0 && ++at[d] == t.shape[d]; --d) at[d] = 0;
  }
  return out;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  // Not blocking, so that opening a pipe fails below instead of waiting for a writer.
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) throw Error(ErrorKind::io, fmt::format("cannot open {}: {}", path, std::strerror(errno)));
  try {
    struct stat st {};
    if (::fstat(fd_, &st) != 0)
      throw Error(ErrorKind::io, fmt::format("cannot read {}: {}", path, std::strerror(errno)));
    if (!S_ISREG(st.st_mode)) {
      throw Error(ErrorKind::io, fmt::format("cannot read {}: it is {}, expected a safetensors file", path,
                                             S_ISDIR(st.st_mode) ? "a directory" : "not a regular file"));
    }
    const std::uint64_t size = static_cast<std::uint64_t>(st.st_size);
    if (size < 8) {
      throw Error(ErrorKind::io, fmt::format("{}: not a safetensors file: it has {} bytes, expected an 8-byte header "
                                             "length and more",
                                             path, size));
    }
    std::uint64_t length = 0;
    read_at(fd_, 0, &length, 8, path);
    if (length > io::max_header_bytes) {
      throw Error(ErrorKind::io,
                  fmt::format("{}: not a safetensors file: its header would take {} bytes, at most {} are "
                              "accepted",
                              path, length, io::max_header_bytes));
    }
    if (length > size - 8) {
      throw Error(ErrorKind::io, fmt::format("{}: the file is truncated: its header takes {} bytes, found {}", path,
                                             length, size - 8));
    }
    std::string json(length, '\0');
    read_at(fd_, 8, json.data(), length, path);
    data_start_ = 8 + length;
    io::SafetensorsHeader header = io::parse_safetensors_header(json, size - data_start_, path);
    entries_ = std::move(header.entries);
    metadata_ = std::move(header.metadata);
    for (std::size_t i = 0; i < entries_.size(); ++i) index_.emplace(entries_[i].name, i);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() {
  if (fd_ >= 0) ::close(fd_);
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      data_start_(other.data_start_),
      entries_(std::move(other.entries_)),
      index_(std::move(other.index_)),
      metadata_(std::move(other.metadata_)) {}

SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(data_start_, other.data_start_);
  std::swap(entries_, other.entries_);
  std::swap(index_, other.index_);
  std::swap(metadata_, other.metadata_);
  return *this;
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &entries_[it->second];
}

const SafetensorsEntry& SafetensorsFile::require(std::string_view name) const {
  if (const SafetensorsEntry* e = find(name)) return *e;
  std::vector<std::string> some;
  for (std::size_t i = 0; i < entries_.size() && i < 8; ++i) some.push_back(entries_[i].name);
  throw Error(ErrorKind::io, fmt::format("{}: no tensor '{}'; the file has {} tensors{}{}{}", path_, name,
                                         entries_.size(), some.empty() ? "" : ": ", fmt::join(some, ", "),
                                         entries_.size() > some.size() ? ", ..." : ""));
}

void SafetensorsFile::read_bytes(const SafetensorsEntry& entry, void* out) const {
  read_at(fd_, data_start_ + entry.begin, out, entry.end - entry.begin, path_);
}

HostTensor SafetensorsFile::read(std::string_view name) const {
  const SafetensorsEntry& e = require(name);
  if (!e.dtype) {
    throw Error(ErrorKind::unsupported, fmt::format("{}: tensor '{}' is {}, expected one of F32, BF16, F16, F8_E4M3, "
                                                    "F8_E5M2, I32, I64, F64",
                                                    path_, e.name, e.dtype_name));
  }
  if (e.shape.size() > Tensor::max_rank) {
    throw Error(ErrorKind::unsupported, fmt::format("{}: tensor '{}' has {} dimensions, at most {} are supported",
                                                    path_, e.name, e.shape.size(), Tensor::max_rank));
  }
  HostTensor t(*e.dtype, e.shape);
  read_bytes(e, t.view().data);
  return t;
}

void SafetensorsFile::read_into(std::string_view name, const Tensor& out) const {
  const SafetensorsEntry& e = require(name);
  if (e.dtype != out.dtype) {
    throw Error(ErrorKind::dtype, fmt::format("{}: tensor '{}' is {}, expected {}", path_, e.name, e.dtype_name,
                                              io::safetensors_name(out.dtype)));
  }
  if (e.shape != shape_of(out)) {
    throw Error(ErrorKind::shape, fmt::format("{}: tensor '{}' has shape [{}], expected [{}]", path_, e.name,
                                              fmt::join(e.shape, ", "), fmt::join(shape_of(out), ", ")));
  }
  if (!is_row_major(out)) {
    throw Error(ErrorKind::layout,
                fmt::format("{}: cannot read '{}' into strided memory, expected a row-major view", path_, e.name));
  }
  read_bytes(e, out.data);
}

void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& t : tensors) {
    if (t.name == "__metadata__" || t.name.empty()) {
      throw Error(ErrorKind::value, fmt::format("cannot write {}: a tensor can't be named '{}'", path, t.name));
    }
    if (t.tensor.device.type != DeviceType::cpu) {
      throw Error(ErrorKind::device,
                  fmt::format("cannot write {}: tensor '{}' is not in host memory; copy it there", path, t.name));
    }
    order.push_back(&t);
  }
  // Wide elements first, so that every tensor stays aligned to its element; then by name, so that equal tensors give
  // equal files.
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) {
    const auto wide = [](auto* t) { return size_of(t->tensor.dtype); };
    return wide(a) != wide(b) ? wide(a) > wide(b) : a->name < b->name;
  });

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t at = 0;
  std::map<std::string_view, int> seen;
  for (const NamedTensor* t : order) {
    if (seen[t->name]++ > 0) {
      throw Error(ErrorKind::value, fmt::format("cannot write {}: two tensors are named '{}'", path, t->name));
    }
  }
  for (const NamedTensor* t : order) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(t->tensor.numel()) * size_of(t->tensor.dtype);
    nlohmann::ordered_json entry = {{"dtype", std::string(io::safetensors_name(t->tensor.dtype))},
                                    {"shape", shape_of(t->tensor)},
                                    {"data_offsets", {at, at + bytes}}};
    // ordered_json looks a key up by scanning; with the names known to differ, appending keeps this linear.
    header.get_ref<nlohmann::ordered_json::object_t&>().emplace_back(t->name, std::move(entry));
    at += bytes;
  }
  std::string json;
  try {
    json = header.dump();
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorKind::value,
                fmt::format("cannot write {}: a tensor's name or a metadata string is not UTF-8", path));
  }
  json.resize((json.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = json.size();
  if (length > io::max_header_bytes) {
    throw Error(ErrorKind::value, fmt::format("cannot write {}: its header would take {} bytes, at most {} are allowed",
                                              path, length, io::max_header_bytes));
  }

  io::AtomicFile file(path);
  file.write(&length, 8);
  file.write(json.data(), json.size());
  for (const NamedTensor* t : order) {
    const std::size_t bytes = static_cast<std::size_t>(t->tensor.numel()) * size_of(t->tensor.dtype);
    if (is_row_major(t->tensor)) {
      file.write(t->tensor.data, bytes);
    } else {
      const std::vector<char> packed = gathered(t->tensor);
      file.write(packed.data(), packed.size());
    }
  }
  file.commit();
}

}  // namespace coda

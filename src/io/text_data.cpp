// Byte-level text data: see text_data.hpp.
#include "io/text_data.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "coda/error.hpp"

namespace coda::io {
namespace {

std::vector<std::uint8_t> read_whole(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw Error(ErrorKind::io, fmt::format("cannot open the text {}: {}", path, std::strerror(errno)));
  std::vector<std::uint8_t> bytes;
  std::size_t used = 0;
  for (;;) {
    if (used == bytes.size()) bytes.resize(std::max<std::size_t>(1 << 20, 2 * used));
    const ssize_t n = ::read(fd, bytes.data() + used, bytes.size() - used);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int code = errno;
      ::close(fd);
      throw Error(ErrorKind::io, fmt::format("cannot read the text {}: {}", path, std::strerror(code)));
    }
    if (n == 0) break;
    used += static_cast<std::size_t>(n);
  }
  ::close(fd);
  bytes.resize(used);
  return bytes;
}

/// SplitMix64: a well-mixed 64-bit function of its argument.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

void append(Batch& out, std::span<const std::uint8_t> text, std::size_t at, std::size_t sequence) {
  for (std::size_t i = 0; i < sequence; ++i) {
    out.tokens.push_back(text[at + i]);
    out.targets.push_back(text[at + i + 1]);
  }
}

}  // namespace

TextData::TextData(const std::string& path, double validation_fraction, std::int64_t sequence)
    : bytes_(read_whole(path)) {
  if (!(validation_fraction > 0 && validation_fraction < 1)) {
    throw Error(ErrorKind::value,
                fmt::format("the validation fraction is {}, expected a number between 0 and 1", validation_fraction));
  }
  if (bytes_.empty()) throw Error(ErrorKind::io, fmt::format("the text {} is empty", path));
  const auto size = static_cast<double>(bytes_.size());
  train_ = std::min(bytes_.size(), static_cast<std::size_t>(size * (1 - validation_fraction)));
  const std::size_t shorter = std::min(train_, bytes_.size() - train_);
  if (shorter < static_cast<std::size_t>(sequence) + 1) {
    throw Error(ErrorKind::value,
                fmt::format("the text {} is too short: of its {} bytes {} are for training and {} for validation, and "
                            "each part needs at least {} (one sequence and its last target); give more text or a "
                            "shorter sequence",
                            path, bytes_.size(), train_, bytes_.size() - train_, sequence + 1));
  }
}

Batch random_batch(std::span<const std::uint8_t> text, std::int64_t batch, std::int64_t sequence, std::uint64_t seed,
                   std::uint64_t step) {
  const auto length = static_cast<std::size_t>(sequence);
  const std::uint64_t places = text.size() - length;  // the bias of a remainder is below places / 2^64
  Batch out;
  const std::uint64_t stream = mix(mix(seed) ^ step);
  for (std::int64_t i = 0; i < batch; ++i) {
    const std::uint64_t r = mix(stream + static_cast<std::uint64_t>(i));
    const auto at = static_cast<std::size_t>(r % places);
    append(out, text, at, length);
  }
  return out;
}

Batch consecutive_batch(std::span<const std::uint8_t> text, std::int64_t batch, std::int64_t sequence,
                        std::int64_t first) {
  const auto length = static_cast<std::size_t>(sequence);
  Batch out;
  for (std::int64_t i = first; i < first + batch; ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * length;
    if (at + length + 1 > text.size()) break;
    append(out, text, at, length);
  }
  return out;
}

}  // namespace coda::io

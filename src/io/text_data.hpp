// Text as training data: bytes are the vocabulary, the file's end is held out for validation, and batches follow from a
// seed and a step number alone.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace coda::io {

class TextData {
 public:
  static constexpr std::int64_t vocabulary = 256;

  /// Reads the whole file. The last `validation_fraction` of it is held out. Throws Error(io) when the file is missing,
  /// unreadable or empty, Error(value) when either part is shorter than one sequence and its last target, or the
  /// fraction isn't in (0, 1).
  TextData(const std::string& path, double validation_fraction, std::int64_t sequence);

  std::span<const std::uint8_t> train() const { return {bytes_.data(), train_}; }
  std::span<const std::uint8_t> validation() const { return std::span(bytes_).subspan(train_); }

 private:
  std::vector<std::uint8_t> bytes_;
  std::size_t train_ = 0;
};

/// One batch: `tokens` and the `targets` that follow each, batch x sequence, row-major.
struct Batch {
  std::vector<std::int64_t> tokens, targets;
};

/// `batch` sequences from pseudo-random places of `text`. A function of its arguments: step 7 is the same batch in a
/// run that was resumed at step 7.
Batch random_batch(std::span<const std::uint8_t> text, std::int64_t batch, std::int64_t sequence, std::uint64_t seed,
                   std::uint64_t step);

/// Sequences that cover `text` without overlap from its beginning, at most `batch` of them starting with number
/// `first`; fewer, or none, at the end.
Batch consecutive_batch(std::span<const std::uint8_t> text, std::int64_t batch, std::int64_t sequence,
                        std::int64_t first);

}  // namespace coda::io

// SHA-256 (FIPS 180-4): names of cache entries, and their checksums.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace coda::cuda {

class Sha256 {
 public:
  /// Adds bytes. Fields of a key go in through field(), which keeps "ab","c" and "a","bc" apart.
  Sha256& add(std::string_view bytes);
  Sha256& field(std::string_view bytes);
  /// The digest in hexadecimal. The object is spent.
  std::string hex();

 private:
  void block(const std::uint8_t* p);
  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, 64> buffer_{};
  std::size_t filled_ = 0;
  std::uint64_t length_ = 0;
};

}  // namespace coda::cuda

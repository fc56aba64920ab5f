// The JSON header of a safetensors file: from bytes to checked entries, and back.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "coda/safetensors.hpp"

namespace coda::io {

/// The largest header accepted, as in Hugging Face's reader: a hostile length must not become an allocation.
constexpr std::uint64_t max_header_bytes = 100'000'000;

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
};

/// Parses and checks a header whose tensors must fill `data_bytes` exactly. `path` is for messages. Safe on any bytes:
/// memory is bounded by the header's length, and nesting beyond the format's is refused. Throws Error(io).
SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_bytes, const std::string& path);

/// The name the format gives a dtype.
std::string_view safetensors_name(DType dtype);

}  // namespace coda::io

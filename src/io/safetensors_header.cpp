// Header parsing by events, so that a hostile header never becomes a tree: see safetensors_header.hpp.
#include "io/safetensors_header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "coda/error.hpp"

namespace coda::io {
namespace {

struct FileType {
  std::string_view name;
  std::uint64_t bytes;
  std::optional<DType> dtype;
};

// Types of whole bytes in the format; those without a dtype can be listed but not read.
constexpr FileType file_types[] = {
    {"F32", 4, DType::f32},       {"BF16", 2, DType::bf16}, {"F16", 2, DType::f16},   {"F8_E4M3", 1, DType::e4m3},
    {"F8_E5M2", 1, DType::e5m2},  {"I32", 4, DType::i32},   {"I64", 8, DType::i64},   {"F64", 8, DType::f64},
    {"BOOL", 1, std::nullopt},    {"U8", 1, std::nullopt},  {"I8", 1, std::nullopt},  {"U16", 2, std::nullopt},
    {"I16", 2, std::nullopt},     {"U32", 4, std::nullopt}, {"U64", 8, std::nullopt}, {"C64", 8, std::nullopt},
    {"F8_E8M0", 1, std::nullopt},
};

const FileType* find_type(std::string_view name) {
  const auto it = std::find_if(std::begin(file_types), std::end(file_types), [&](auto& t) { return t.name == name; });
  return it == std::end(file_types) ? nullptr : it;
}

/// Names come from the file: printed with what isn't plain text replaced, and never at length.
std::string shown(std::string_view name) {
  std::string out = "'";
  for (const char c : name.substr(0, 80)) out += c >= 0x20 && c < 0x7f ? c : '?';
  return out + (name.size() > 80 ? "...'" : "'");
}

/// Receives the events of one header. The only shape accepted is
/// {name: {"dtype": s, "shape": [n...], "data_offsets": [n, n]}, "__metadata__": {s: s}}.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(const std::string& path, SafetensorsHeader& out) : path_(path), out_(out) {}

  bool start_object(std::size_t) override {
    if (place_ == Place::outside) {
      place_ = Place::top;
    } else if (place_ == Place::top) {
      place_ = current_name_ == "__metadata__" ? Place::metadata : Place::tensor;
      entry_ = {};
      entry_.name = current_name_;
      has_dtype_ = has_shape_ = has_offsets_ = false;
    } else {
      refuse("an object");
    }
    return true;
  }

  bool key(std::string& name) override {
    if (place_ == Place::top) {
      if (!names_.insert(name).second) fail(fmt::format("the header names {} twice", shown(name)));
      current_name_ = name;
    } else if (place_ == Place::metadata) {
      if (out_.metadata.contains(name)) fail(fmt::format("the metadata names {} twice", shown(name)));
      current_field_ = name;
    } else {
      bool* const seen = name == "dtype"          ? &has_dtype_
                         : name == "shape"        ? &has_shape_
                         : name == "data_offsets" ? &has_offsets_
                                                  : nullptr;
      if (seen == nullptr) {
        fail(fmt::format("tensor {} has a field {}, expected dtype, shape and data_offsets", shown(entry_.name),
                         shown(name)));
      }
      if (*seen) fail(fmt::format("tensor {} has the field {} twice", shown(entry_.name), name));
      *seen = true;
      current_field_ = name;
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor) {
      if (!has_dtype_ || !has_shape_ || !has_offsets_) {
        fail(fmt::format("tensor {} lacks its {}", shown(entry_.name),
                         !has_dtype_ ? "dtype" : (!has_shape_ ? "shape" : "data_offsets")));
      }
      finish_tensor();
    }
    place_ = place_ == Place::top ? Place::outside : Place::top;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::tensor || current_field_ == "dtype") refuse("an array");
    place_ = Place::numbers;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    place_ = Place::tensor;
    if (current_field_ == "shape") {
      for (const std::uint64_t n : numbers_) {
        if (n > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
          fail(fmt::format("tensor {} has an extent of {}, which overflows", shown(entry_.name), n));
        }
        entry_.shape.push_back(static_cast<std::int64_t>(n));
      }
    } else {
      if (numbers_.size() != 2) {
        fail(fmt::format("tensor {} has {} data_offsets, expected 2", shown(entry_.name), numbers_.size()));
      }
      entry_.begin = numbers_[0];
      entry_.end = numbers_[1];
    }
    return true;
  }

  bool number_unsigned(std::uint64_t n) override {
    if (place_ != Place::numbers) refuse("a number");
    numbers_.push_back(n);
    return true;
  }

  bool string(std::string& s) override {
    if (place_ == Place::metadata) {
      out_.metadata[current_field_] = s;
    } else if (place_ == Place::tensor && current_field_ == "dtype") {
      entry_.dtype_name = s;
    } else {
      refuse("a string");
    }
    return true;
  }

  bool number_integer(std::int64_t n) override { refuse(fmt::format("the negative number {}", n)); }
  bool number_float(double, const std::string& text) override {
    refuse(fmt::format("the number {} where a whole one belongs", shown(text)));
  }
  bool null() override { refuse("null"); }
  bool boolean(bool) override { refuse("a boolean"); }
  bool binary(nlohmann::json::binary_t&) override { refuse("binary data"); }

  bool parse_error(std::size_t at, const std::string&, const nlohmann::json::exception&) override {
    fail(fmt::format("the header is not JSON at its byte {}", at));
  }

 private:
  enum class Place { outside, top, metadata, tensor, numbers };

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::io, fmt::format("{}: not a well-formed safetensors file: {}", path_, what));
  }
  [[noreturn]] void refuse(std::string_view what) const {
    switch (place_) {
      case Place::outside: fail(fmt::format("the header is {}, expected an object", what));
      case Place::top: fail(fmt::format("the header gives {} for {}, expected an object", what, shown(current_name_)));
      case Place::metadata:
        fail(fmt::format("the metadata gives {} for {}, expected a string", what, shown(current_field_)));
      default: fail(fmt::format("the {} of tensor {} has {}", current_field_, shown(entry_.name), what));
    }
  }

  void finish_tensor() {
    const FileType* const type = find_type(entry_.dtype_name);
    if (type == nullptr) {
      fail(fmt::format("tensor {} has the unknown dtype {}", shown(entry_.name), shown(entry_.dtype_name)));
    }
    entry_.dtype = type->dtype;
    std::uint64_t bytes = type->bytes;
    for (const std::int64_t n : entry_.shape) {
      if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(n), &bytes)) {
        fail(fmt::format("the shape of tensor {} overflows", shown(entry_.name)));
      }
    }
    if (entry_.end < entry_.begin || entry_.end - entry_.begin != bytes) {
      fail(fmt::format("tensor {} has data_offsets [{}, {}], but its shape and dtype take {} bytes", shown(entry_.name),
                       entry_.begin, entry_.end, bytes));
    }
    out_.entries.push_back(std::move(entry_));
  }

  const std::string& path_;
  SafetensorsHeader& out_;
  Place place_ = Place::outside;
  std::set<std::string> names_;
  std::string current_name_, current_field_;
  SafetensorsEntry entry_;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  std::vector<std::uint64_t> numbers_;
};

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_bytes, const std::string& path) {
  SafetensorsHeader header;
  HeaderReader reader(path, header);
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);

  std::stable_sort(header.entries.begin(), header.entries.end(),
                   [](auto& a, auto& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  std::uint64_t at = 0;
  for (const SafetensorsEntry& e : header.entries) {
    if (e.begin != at) {
      throw Error(ErrorKind::io,
                  fmt::format("{}: not a well-formed safetensors file: tensor {} begins at byte {} of the data, "
                              "expected {} ({})",
                              path, shown(e.name), e.begin, at, e.begin < at ? "tensors overlap" : "a hole"));
    }
    at = e.end;
  }
  if (at != data_bytes) {
    throw Error(ErrorKind::io,
                fmt::format("{}: the file is {}: its header describes {} bytes of tensors, found {}", path,
                            at > data_bytes ? "truncated" : "longer than its header says", at, data_bytes));
  }
  return header;
}

std::string_view safetensors_name(DType dtype) {
  const auto it = std::find_if(std::begin(file_types), std::end(file_types), [&](auto& t) { return t.dtype == dtype; });
  return it->name;
}

}  // namespace coda::io

// The library's one exception type.
#pragma once
#include <stdexcept>
#include <string>

namespace coda {

/// What kind of fault an Error reports; the command line and the C ABI map it to status codes.
enum class ErrorKind {
  syntax,       ///< program text that doesn't parse
  type,         ///< a well-formed program whose types, extents or names don't fit
  locality,     ///< a value that is not tile-local is used inside its own epilogue
  shape,        ///< a tensor's extents don't fit the program or each other
  dtype,        ///< a tensor's element type isn't the declared one
  layout,       ///< strides, majors or alignment that the engine can't take
  value,        ///< data or an argument out of its range
  io,           ///< a file that can't be read or written
  unsupported,  ///< asked for something this build, device or engine doesn't do
  device,       ///< the CUDA driver or NVRTC reported a failure
  internal,     ///< a broken invariant of ours: a bug
};

/// A position in a program text; line and column count from 1, 0 means unknown.
struct Location {
  std::string file;
  int line = 0;
  int column = 0;
};

/// Thrown for every failure. what() is a full sentence: place, operand, expected, found, way out.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message, Location where = {})
      : std::runtime_error(message), kind_(kind), where_(std::move(where)) {}
  ErrorKind kind() const noexcept { return kind_; }
  const Location& where() const noexcept { return where_; }

 private:
  ErrorKind kind_;
  Location where_;
};

}  // namespace coda

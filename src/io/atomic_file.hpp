// A file that appears whole or not at all: written beside its place, synced, then renamed over it.
#pragma once
#include <cstddef>
#include <string>

namespace coda::io {

class AtomicFile {
 public:
  /// Creates a temporary file in the directory of `path`. Throws Error(io), also where `path` is not a regular file.
  explicit AtomicFile(const std::string& path);
  /// Removes the temporary file unless commit() was reached.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends bytes. Throws Error(io) when they don't all fit (a full disk, a quota).
  void write(const void* data, std::size_t bytes);
  /// Syncs the bytes and gives the file its name, replacing a previous one in one step. Throws Error(io).
  void commit();

 private:
  [[noreturn]] void fail(const char* doing) const;

  std::string path_;       // where it will be, links resolved
  std::string temporary_;  // where it is until commit(); empty afterwards
  int fd_ = -1;
};

}  // namespace coda::io

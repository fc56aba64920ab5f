// The disk cache: named blobs in one directory, written once, shared by any number of processes and threads.
//
// An entry is a file <key>.<kind> whose first line holds a format number, the payload's length and its SHA-256. It is
// written to a temporary file of the same directory, synced and renamed, so a reader sees a whole entry or none. An
// entry whose length or checksum doesn't fit is removed and counts as absent: its caller makes it again.
// A directory that can't be made, written or trusted (another user's) is reported once, through coda::warn, and
// the cache goes on in memory.
#pragma once
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coda::cuda {

class DiskCache {
 public:
  /// Nothing is touched until the first read or write.
  explicit DiskCache(std::string directory);

  /// The payload, or nothing where there is no sound entry.
  std::optional<std::string> read(std::string_view key, std::string_view kind);
  /// Stores a payload under `key`; the last writer of equal keys wins. Never throws for a file system's failure.
  void write(std::string_view key, std::string_view kind, std::string_view payload);

  const std::string& directory() const { return directory_; }
  /// What went wrong, each fact once, for a caller that wants to show it.
  std::vector<std::string> warnings() const;

 private:
  std::string path_of(std::string_view key, std::string_view kind) const;
  bool usable();
  void warn(std::string text);

  std::string directory_;
  mutable std::mutex mutex_;
  bool checked_ = false, usable_ = false, write_failed_ = false;
  std::map<std::string, std::string> memory_;  // what could not be stored
  std::vector<std::string> warnings_;
};

/// CODA_CACHE_DIR, or XDG_CACHE_HOME/coda, or HOME/.cache/coda, read at each call; empty where none is set.
std::string default_cache_directory();

/// The process's cache of compiled kernels and tuned choices, in default_cache_directory() as it was at first use.
DiskCache& kernel_cache();

}  // namespace coda::cuda

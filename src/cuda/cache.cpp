#include "cuda/cache.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "coda/warning.hpp"
#include "cuda/hash.hpp"

namespace coda::cuda {
namespace {

constexpr std::string_view magic = "coda-cache 1";

std::string header_of(std::string_view payload) {
  return fmt::format("{} {} {}\n", magic, payload.size(), Sha256().add(payload).hex());
}

std::string text_of(int error) { return std::error_code(error, std::generic_category()).message(); }

std::optional<std::string> read_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string bytes;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      close(fd);
      if (n < 0) return std::nullopt;
      return bytes;
    }
    bytes.append(buffer, static_cast<std::size_t>(n));
  }
}

// Makes a file of its own from the pattern `path` (…XXXXXX). 0, or the errno of the step that failed; the file is on
// disk, whole, when this returns 0.
int write_file(std::string& path, std::string_view a, std::string_view b) {
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) return errno;
  for (std::string_view part : {a, b}) {
    while (!part.empty()) {
      const ssize_t n = ::write(fd, part.data(), part.size());
      if (n < 0) {
        if (errno == EINTR) continue;
        const int e = errno;
        close(fd);
        return e;
      }
      part.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  const int synced = fsync(fd) == 0 ? 0 : errno;
  return close(fd) == 0 ? synced : errno;
}

}  // namespace

DiskCache::DiskCache(std::string directory) : directory_(std::move(directory)) {}

std::string DiskCache::path_of(std::string_view key, std::string_view kind) const { return fmt::format("{}/{}.{}", directory_, key, kind); }

void DiskCache::warn(std::string text) {
  coda::warn(text);
  warnings_.push_back(std::move(text));
}

// Called under the lock.
bool DiskCache::usable() {
  if (checked_) return usable_;
  checked_ = true;
  constexpr const char* aftermath = "kernels are compiled again in each process; set CODA_CACHE_DIR to a directory of yours";
  if (directory_.empty()) {
    warn(fmt::format("coda: no cache directory: none of CODA_CACHE_DIR, XDG_CACHE_HOME and HOME is set; {}", aftermath));
    return false;
  }
  std::error_code ec;
  std::filesystem::create_directories(directory_, ec);
  struct stat s {};
  if (stat(directory_.c_str(), &s) != 0) {
    warn(fmt::format("coda: the cache directory {} can't be made: {}; {}", directory_, ec ? ec.message() : text_of(errno), aftermath));
    return false;
  }
  if (!S_ISDIR(s.st_mode)) {
    warn(fmt::format("coda: the cache directory {} is not a directory; {}", directory_, aftermath));
    return false;
  }
  // Its entries are machine code that we load: nobody else may be able to put them there.
  if (s.st_uid != geteuid() || (s.st_mode & S_IWOTH)) {
    warn(fmt::format("coda: the cache directory {} {}, so its entries can't be trusted; {}", directory_,
                     s.st_uid != geteuid() ? fmt::format("belongs to user {}", s.st_uid) : "can be written by anyone", aftermath));
    return false;
  }
  return usable_ = true;
}

std::optional<std::string> DiskCache::read(std::string_view key, std::string_view kind) {
  const std::string path = path_of(key, kind);
  {
    std::lock_guard lock(mutex_);
    if (auto it = memory_.find(path); it != memory_.end()) return it->second;
    if (!usable()) return std::nullopt;
  }
  auto bytes = read_file(path);
  if (!bytes) return std::nullopt;
  const std::size_t line = bytes->find('\n');
  if (line != std::string::npos) {
    std::string payload = bytes->substr(line + 1);
    if (bytes->compare(0, line + 1, header_of(payload)) == 0) return payload;
  }
  unlink(path.c_str());
  return std::nullopt;
}

void DiskCache::write(std::string_view key, std::string_view kind, std::string_view payload) {
  const std::string path = path_of(key, kind);
  {
    std::lock_guard lock(mutex_);
    if (!usable() || write_failed_) {
      memory_[path] = payload;
      return;
    }
  }
  std::string temporary = path + ".XXXXXX";
  int error = write_file(temporary, header_of(payload), payload);
  if (error == 0 && rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) {  // the rename itself reaches the disk with the directory
    if (const int fd = open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); fd >= 0) {
      fsync(fd);
      close(fd);
    }
    return;
  }
  unlink(temporary.c_str());
  std::lock_guard lock(mutex_);
  memory_[path] = payload;
  if (!std::exchange(write_failed_, true))
    warn(fmt::format("coda: the cache directory {} can't be written: {}; new kernels are kept in this process alone", directory_, text_of(error)));
}

std::vector<std::string> DiskCache::warnings() const {
  std::lock_guard lock(mutex_);
  return warnings_;
}

std::string default_cache_directory() {
  auto value = [](const char* name) -> std::string {
    const char* v = std::getenv(name);
    return v ? v : "";
  };
  if (auto dir = value("CODA_CACHE_DIR"); !dir.empty()) return dir;
  // The base-directory specification: a relative XDG_CACHE_HOME is to be ignored.
  if (auto base = value("XDG_CACHE_HOME"); !base.empty() && base.front() == '/') return base + "/coda";
  if (auto home = value("HOME"); !home.empty()) return home + "/.cache/coda";
  return {};
}

DiskCache& kernel_cache() {
  static DiskCache& cache = *new DiskCache(default_cache_directory());  // never destroyed: threads may outlive main
  return cache;
}

}  // namespace coda::cuda

// Temporary file, sync, rename: see atomic_file.hpp.
#include "io/atomic_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "coda/error.hpp"

namespace coda::io {
namespace {

std::string directory_of(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  if (path.empty()) throw Error(ErrorKind::io, "cannot write a file with an empty name");
  // A link stays a link: the file it names is what gets replaced.
  std::error_code ignored;
  if (std::filesystem::is_symlink(path, ignored)) {
    const auto target = std::filesystem::weakly_canonical(path, ignored);
    if (!ignored) path_ = target.string();
  }
  struct stat st {};
  if (::stat(path_.c_str(), &st) == 0 && !S_ISREG(st.st_mode)) {
    throw Error(ErrorKind::io, fmt::format("cannot write {}: it is {}, expected a regular file or a new name", path,
                                           S_ISDIR(st.st_mode) ? "a directory" : "a device or pipe"));
  }
  for (int attempt = 0; fd_ < 0; ++attempt) {
    temporary_ = fmt::format("{}.{}-{}.tmp", path_, ::getpid(), attempt);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 && (errno != EEXIST || attempt == 1000)) {
      const int saved = errno;
      temporary_.clear();
      errno = saved;
      fail("create a file there");
    }
  }
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  const char* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd_, p, std::min<std::size_t>(bytes, std::size_t{1} << 30));
    if (n < 0) {
      if (errno == EINTR) continue;
      fail("write all of it");
    }
    p += n;
    bytes -= static_cast<std::size_t>(n);
  }
}

void AtomicFile::commit() {
  if (::fsync(fd_) != 0) fail("sync it to disk");
  const int fd = fd_;
  fd_ = -1;
  if (::close(fd) != 0) fail("close it");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("move it to its place");
  temporary_.clear();
  // The name is durable once its directory is. Some file systems can't sync a directory; the file is whole all the
  // same.
  const int directory = ::open(directory_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    ::fsync(directory);
    ::close(directory);
  }
}

void AtomicFile::fail(const char* doing) const {
  const int code = errno;
  throw Error(ErrorKind::io, fmt::format("cannot write {}: could not {}: {}; a previous file of that name is unchanged",
                                         path_, doing, std::strerror(code)));
}

}  // namespace coda::io

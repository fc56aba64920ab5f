#include "cuda/nvrtc.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>

#include "coda/error.hpp"
#include "cuda/library.hpp"

namespace coda::cuda {
namespace {

using NvrtcProgram = struct nvrtcProgramHandle*;

struct Nvrtc {
  Library library;
  int (*nvrtcVersion)(int*, int*) = nullptr;
  const char* (*nvrtcGetErrorString)(int) = nullptr;
  int (*nvrtcCreateProgram)(NvrtcProgram*, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  int (*nvrtcDestroyProgram)(NvrtcProgram*) = nullptr;
  int (*nvrtcCompileProgram)(NvrtcProgram, int, const char* const*) = nullptr;
  int (*nvrtcGetCUBINSize)(NvrtcProgram, std::size_t*) = nullptr;
  int (*nvrtcGetCUBIN)(NvrtcProgram, char*) = nullptr;
  int (*nvrtcGetProgramLogSize)(NvrtcProgram, std::size_t*) = nullptr;
  int (*nvrtcGetProgramLog)(NvrtcProgram, char*) = nullptr;
  int major = 0, minor = 0;
};

std::vector<std::string> candidate_names() {
  if (const char* named = std::getenv("CODA_NVRTC"); named && *named) return {named};  // what the user names is all we try
  std::vector<std::string> names = {"libnvrtc.so.13", "libnvrtc.so.12"};
  std::vector<std::string> roots;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* root = std::getenv(variable); root && *root) roots.push_back(root);
  roots.push_back("/usr/local/cuda");
  for (const std::string& root : roots)
    for (const char* dir : {"lib64", "lib"})
      for (const char* version : {"13", "12"}) names.push_back(fmt::format("{}/{}/libnvrtc.so.{}", root, dir, version));
  names.push_back("libnvrtc.so");
  return names;
}

/// NVRTC opens its built-in headers by a bare name, which the loader finds in the directory of a wheel or a toolkit off
/// the library path only if the file is open already. Where it can't be opened NVRTC says itself what is missing.
void open_builtins(const Nvrtc& n) {
  Dl_info where{};
  if (dladdr(reinterpret_cast<void*>(n.nvrtcVersion), &where) == 0 || where.dli_fname == nullptr) return;
  std::error_code ignored;
  const auto file = std::filesystem::canonical(where.dli_fname, ignored);
  if (ignored) return;
  dlopen((file.parent_path() / fmt::format("libnvrtc-builtins.so.{}.{}", n.major, n.minor)).c_str(), RTLD_NOW | RTLD_LOCAL);
}

const Nvrtc& nvrtc() {
  static std::mutex mutex;
  static Nvrtc* opened = nullptr;
  std::lock_guard lock(mutex);
  if (opened) return *opened;
  const auto names = candidate_names();
  std::unique_ptr<Nvrtc> n(new Nvrtc{.library = Library(
      "CUDA's run-time compiler (NVRTC)", names,
      "Install NVRTC 12.3 or newer (package cuda-nvrtc, or nvidia-cuda-nvrtc from PyPI) and put it on the library path, "
      "or name its file in CODA_NVRTC")});
#define CODA_BIND(name) n->library.bind(n->name, #name)
  CODA_BIND(nvrtcVersion); CODA_BIND(nvrtcGetErrorString); CODA_BIND(nvrtcCreateProgram); CODA_BIND(nvrtcDestroyProgram);
  CODA_BIND(nvrtcCompileProgram); CODA_BIND(nvrtcGetCUBINSize); CODA_BIND(nvrtcGetCUBIN);
  CODA_BIND(nvrtcGetProgramLogSize); CODA_BIND(nvrtcGetProgramLog);
#undef CODA_BIND
  if (n->nvrtcVersion(&n->major, &n->minor) != 0) throw Error(ErrorKind::device, "nvrtcVersion failed: the library is damaged");
  if (n->major < 12 || (n->major == 12 && n->minor < 3))
    throw Error(ErrorKind::unsupported, fmt::format("NVRTC {}.{} ({}) is too old: version 12.3 or newer is needed; install one, or name "
                                                    "its file in CODA_NVRTC", n->major, n->minor, n->library.name()));
  open_builtins(*n);
  opened = n.release();
  return *opened;
}

void check(int r, const char* call) {
  if (r != 0) throw Error(ErrorKind::device, fmt::format("{} failed: {}", call, nvrtc().nvrtcGetErrorString(r)));
}

std::vector<std::string> option_list(const CompileOptions& o) {
  std::vector<std::string> list = {"--gpu-architecture=" + o.architecture, "--std=c++17", "-default-device", "--prec-div=false", "--prec-sqrt=false", "--ptxas-options=-v",
                                   "--diag-suppress=186" /* unsigned compared with 0, in templates */};
  for (const std::string& d : o.defines) list.push_back("--define-macro=" + d);
  return list;
}

// The number that stands before `word` in "… 16 bytes spill stores …".
int number_before(std::string_view line, std::string_view word) {
  const std::size_t at = line.find(word);
  if (at == std::string_view::npos) return 0;
  std::size_t end = at;
  while (end > 0 && line[end - 1] == ' ') --end;
  std::size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  int v = 0;
  std::from_chars(line.data() + begin, line.data() + end, v);
  return v;
}

}  // namespace

std::string nvrtc_version() {
  const Nvrtc& n = nvrtc();
  return fmt::format("{}.{}", n.major, n.minor);
}

std::string option_line(const CompileOptions& options) { return fmt::format("{}", fmt::join(option_list(options), " ")); }

Compiled compile(const std::string& source, std::span<const embedded::File> headers, const CompileOptions& options) {
  const Nvrtc& n = nvrtc();
  const auto start = std::chrono::steady_clock::now();
  // NVRTC wants zero-terminated texts.
  std::vector<std::string> names, texts;
  for (const embedded::File& h : headers) {
    names.emplace_back(h.name);
    texts.emplace_back(h.text);
  }
  std::vector<const char*> name_pointers, text_pointers, option_pointers;
  for (const auto& s : names) name_pointers.push_back(s.c_str());
  for (const auto& s : texts) text_pointers.push_back(s.c_str());
  const auto list = option_list(options);
  for (const auto& s : list) option_pointers.push_back(s.c_str());

  NvrtcProgram raw = nullptr;
  check(n.nvrtcCreateProgram(&raw, source.c_str(), "kernel.cu", static_cast<int>(headers.size()), text_pointers.data(), name_pointers.data()),
        "nvrtcCreateProgram");
  auto destroy = [&n](NvrtcProgram p) { n.nvrtcDestroyProgram(&p); };
  std::unique_ptr<struct nvrtcProgramHandle, decltype(destroy)> program(raw, destroy);

  Compiled out;
  const int r = n.nvrtcCompileProgram(raw, static_cast<int>(option_pointers.size()), option_pointers.data());
  std::size_t size = 0;
  check(n.nvrtcGetProgramLogSize(raw, &size), "nvrtcGetProgramLogSize");
  out.log.resize(size);
  if (size) check(n.nvrtcGetProgramLog(raw, out.log.data()), "nvrtcGetProgramLog");
  while (!out.log.empty() && out.log.back() == '\0') out.log.pop_back();
  if (r != 0)
    throw Error(ErrorKind::device, fmt::format("nvrtcCompileProgram failed: {} (options {}):\n{}", n.nvrtcGetErrorString(r), option_line(options), out.log));
  check(n.nvrtcGetCUBINSize(raw, &size), "nvrtcGetCUBINSize");
  out.code.resize(size);
  check(n.nvrtcGetCUBIN(raw, out.code.data()), "nvrtcGetCUBIN");
  out.usage = parse_usage(out.log);
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

ResourceUsage parse_usage(std::string_view log) {
  ResourceUsage u;
  u.serialised = log.find("wgmma.mma_async instructions are serialized") != std::string_view::npos;
  while (!log.empty()) {
    const std::size_t end = std::min(log.find('\n'), log.size());
    const std::string_view line = log.substr(0, end);
    log.remove_prefix(std::min(end + 1, log.size()));
    u.spill_store_bytes = std::max(u.spill_store_bytes, number_before(line, "bytes spill stores"));
    u.spill_load_bytes = std::max(u.spill_load_bytes, number_before(line, "bytes spill loads"));
    u.stack_bytes = std::max(u.stack_bytes, number_before(line, "bytes stack frame"));
    if (const std::size_t used = line.find("Used "); used != std::string_view::npos) u.registers = std::max(u.registers, number_before(line, "registers"));
    u.static_shared_bytes = std::max(u.static_shared_bytes, number_before(line, "bytes smem"));
  }
  return u;
}

}  // namespace coda::cuda

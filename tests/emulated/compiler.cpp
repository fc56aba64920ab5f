// NVRTC's functions, which compile a page with the C++ compiler that built this: a "cubin" is a shared library for the
// emulated device.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "page.hpp"

struct nvrtcProgramHandle {
  std::string source, log, cubin;
  std::vector<std::pair<std::string, std::string>> headers;
};
using Handle = nvrtcProgramHandle;

namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// The generated header, its instructions replaced by one call: what it says of the operands' types is kept.
std::string products(const std::string& header) {
  std::smatch types;
  const std::regex shape("m64n\\d+k\\d+\\.f32\\.(\\w+)\\.(\\w+)");
  const bool any = std::regex_search(header, types, shape);
  const auto operand = [&](std::size_t i) { return "emulated::Operand::" + (any ? types[i].str() : std::string("bf16")); };
  return "#pragma once\n#include \"ptx.cuh\"\nnamespace coda {\ntemplate <int N, int A_MN, int B_MN> void wgmma(float* d, u32 a, u32 b, int keep) {\n"
         "  emulated::wgmma(d, a, b, keep != 0, N, A_MN != 0, B_MN != 0, " + operand(1) + ", " + operand(2) + ");\n}\n}\n";
}

// After the page: what the driver asks of it.
std::string description(const std::string& source) {
  std::smatch entry, cluster;
  if (!std::regex_search(source, entry, std::regex("__launch_bounds__\\([^)]*\\)*\\s+(\\w+)\\("))) return "#error no kernel\n";
  const bool clusters = std::regex_search(source, cluster, std::regex("__cluster_dims__\\((\\d+)"));
  const bool alone = source.find("two_pass.cuh") != std::string::npos;
  const std::string name = entry[1];
  return "\ntemplate <class... A> struct Caller {\n"
         "  static constexpr std::uint64_t bytes[] = {sizeof(A)...};\n"
         "  template <std::size_t... I> static void call(void (*f)(A...), void** p, std::index_sequence<I...>) { f(*(std::remove_const_t<A>*)p[I]...); }\n"
         "};\n"
         "template <class... A> Caller<A...> caller(void (*)(A...)) { return {}; }\n"
         "template <class... A> void call(void (*f)(A...), void** p) { Caller<A...>::call(f, p, std::index_sequence_for<A...>()); }\n"
         "static void call_page(void** p) { call(" + name + ", p); }\n"
         "using Called = decltype(caller(" + name + "));\n"
         "extern \"C\" __attribute__((visibility(\"default\"))) const emulated::Page emulated_page = {\"" + name + "\", call_page, " + (clusters ? cluster[1].str() : "1") + ", " + (alone ? "true" : "false") +
         ", sizeof(Called::bytes) / 8, Called::bytes};\n";
}

bool compile(Handle& p) {
  static std::atomic<int> count{0};
  const auto directory = std::filesystem::temp_directory_path() / ("coda-emulated-" + std::to_string(getpid()) + "-" + std::to_string(count++));
  std::filesystem::create_directories(directory);
  for (const auto& [name, text] : p.headers)
    if (name != "ptx.cuh") std::ofstream(directory / name) << (name == "wgmma.cuh" ? products(text) : text);
  std::ofstream(directory / "page.cpp") << "#include <utility>\n" << p.source << description(p.source);
  const std::string at = directory.string();
  // The directory first: "ptx.cuh" is found beside the engine, as no other header is.
  const std::string command = std::string(CODA_CXX " -O1 -std=c++20 -shared -fPIC -w -fvisibility=hidden -I") + at + " -I" CODA_SOURCE_DIR "/tests/emulated -I" CODA_SOURCE_DIR
                              "/include -o " + at + "/page.so " + at + "/page.cpp " CODA_EMULATED_DRIVER " > " + at + "/log 2>&1";
  const bool ok = std::system(command.c_str()) == 0;
  p.log = read(directory / "log");
  if (ok) {
    const std::string library = read(directory / "page.so");
    const emulated::PageHeader header{emulated::page_magic, library.size()};
    p.cubin.assign(reinterpret_cast<const char*>(&header), sizeof header);
    p.cubin += library;
  }
  std::error_code ignored;
  if (!std::getenv("CODA_EMULATED_KEEP")) std::filesystem::remove_all(directory, ignored);
  return ok;
}

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) { return *major = 13, *minor = 0; }
const char* nvrtcGetErrorString(int r) { return r == 0 ? "success" : "the C++ compiler refused the page"; }
int nvrtcCreateProgram(Handle** p, const char* source, const char*, int count, const char* const* texts, const char* const* names) {
  *p = new Handle{source, {}, {}, {}};
  for (int i = 0; i < count; ++i) (*p)->headers.emplace_back(names[i], texts[i]);
  return 0;
}
int nvrtcDestroyProgram(Handle** p) { return delete *p, *p = nullptr, 0; }
int nvrtcCompileProgram(Handle* p, int, const char* const*) { return compile(*p) ? 0 : 6; }
int nvrtcGetCUBINSize(Handle* p, std::size_t* n) { return *n = p->cubin.size(), 0; }
int nvrtcGetCUBIN(Handle* p, char* to) { return std::memcpy(to, p->cubin.data(), p->cubin.size()), 0; }
int nvrtcGetProgramLogSize(Handle* p, std::size_t* n) { return *n = p->log.size() + 1, 0; }
int nvrtcGetProgramLog(Handle* p, char* to) { return std::memcpy(to, p->log.c_str(), p->log.size() + 1), 0; }

}  // extern "C"

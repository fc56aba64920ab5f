#include "emulate.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "embedded.hpp"

namespace coda::test {
namespace {

std::string read(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// A page in a namespace of its own, so that one translation unit holds many.
std::string own_namespace(std::string page, std::size_t index) {
  const std::string name = fmt::format("page_{}", index);
  const auto replace = [&](const std::string& from, const std::string& to) {
    for (std::size_t at = 0; (at = page.find(from, at)) != std::string::npos; at += to.size()) page.replace(at, from.size(), to);
  };
  replace("namespace coda {", "namespace coda::" + name + " {");
  replace("coda::Params", "coda::" + name + "::Params");
  replace("coda::second_pass", "coda::" + name + "::second_pass");
  return page;
}

template <class T> void put(std::vector<unsigned char>& to, int offset, T value) { std::memcpy(to.data() + offset, &value, sizeof value); }

}  // namespace

bool HostLibrary::possible() { return access(CODA_CXX, X_OK) == 0; }

HostLibrary::HostLibrary(const std::string& source) {
  static int count = 0;  // dlopen knows a library again by its path
  directory_ = (std::filesystem::temp_directory_path() / fmt::format("coda-emulation-{}-{}", getpid(), count++)).string();
  std::filesystem::create_directories(directory_);
  for (const embedded::File& f : embedded::device_headers())
    if (f.name != "ptx.cuh") std::ofstream(directory_ + "/" + std::string(f.name)) << f.text;
  std::ofstream(directory_ + "/ptx.cuh") << read(CODA_SOURCE_DIR "/tests/cuda/emulation/ptx.cuh");
  std::ofstream(directory_ + "/source.cpp") << source;
  const std::string log = directory_ + "/log";
  const std::string command = fmt::format("{} -std=c++20 -O0 -shared -fPIC -w -I{} {}/source.cpp -o {}/source.so > {} 2>&1", CODA_CXX,
                                          CODA_SOURCE_DIR "/include", directory_, directory_, log);
  if (std::system(command.c_str()) != 0) throw std::runtime_error(command + "\n" + read(log).substr(0, 4000));
  library_ = dlopen((directory_ + "/source.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library_) throw std::runtime_error(dlerror());
}

HostLibrary::~HostLibrary() {
  if (library_) dlclose(library_);
  std::filesystem::remove_all(directory_);
}

void* HostLibrary::symbol(const std::string& name) const {
  void* found = dlsym(library_, name.c_str());
  if (!found) throw std::runtime_error(dlerror());
  return found;
}

Emulation::Emulation(const std::vector<Program>& programs) : programs_(programs) {
  std::string source;
  for (std::size_t i = 0; i < programs_.size(); ++i) {
    const Config config = choose(demand_of(product_alone(programs_[i])), {.m = 256, .n = 256, .k = 64}).config;
    pages_.push_back(emit_two_pass(programs_[i], config));
    Emitted& e = pages_.back().epilogue;
    std::string page = own_namespace(e.source, i);
    const std::string entry = fmt::format("entry_{}", i);
    page.replace(page.rfind(e.entry), e.entry.size(), entry);
    source += page + fmt::format("extern \"C\" void emulate_{0}(const void* params, int blocks, bool backwards) {{\n"
                                 "  host::launch([](const void* p) {{ {1}(*static_cast<const coda::page_{0}::Params*>(p)); }}, params, blocks, {2}, backwards);\n}}\n",
                                 i, entry, e.threads);
  }
  library_ = std::make_unique<HostLibrary>(source);
}

std::string Emulation::run(std::size_t index, Slots slots, int blocks, bool backwards) const {
  const Program& p = programs_[index];
  const TwoPass& page = pages_[index];
  const Extents x = check_arguments(p, slots);
  blocks = static_cast<int>(std::clamp<std::int64_t>(x.m, 1, blocks));

  // The product, its rows as far apart as in the workspace, and the workspace with its guard.
  const std::int64_t stride = product_stride(x.n);
  std::vector<float> stored(static_cast<std::size_t>(x.m * stride), std::numeric_limits<float>::quiet_NaN());
  const std::int64_t extents[] = {x.m, x.n};
  Tensor view = Tensor::contiguous(stored.data(), DType::f32, extents);
  view.stride[0] = stride;
  if (x.m > 0 && x.n > 0) cpu::run(product_alone(p), std::vector<Tensor>{slots[0], slots[1], view});
  const auto scratch = static_cast<std::size_t>(page.scratch_floats(x.m, x.n, blocks));
  std::vector<std::uint32_t> workspace(scratch + 64, 0xFFFFFFFF);
  std::uint32_t counter = 0;

  std::vector<unsigned char> params(static_cast<std::size_t>(page.epilogue.params_bytes), 0);
  for (const Field& f : page.epilogue.fields) {
    const Tensor* t = f.slot >= 0 ? &slots[static_cast<std::size_t>(f.slot)] : nullptr;
    using enum Field::Kind;
    switch (f.kind) {
      case m: put(params, f.offset, static_cast<std::int32_t>(x.m)); break;
      case n: put(params, f.offset, static_cast<std::int32_t>(x.n)); break;
      case k: put(params, f.offset, static_cast<std::int32_t>(x.k)); break;
      case pointer: put(params, f.offset, t->data); break;
      case extent0: put(params, f.offset, static_cast<std::int32_t>(t->shape[0])); break;
      case extent1: put(params, f.offset, static_cast<std::int32_t>(t->shape[1])); break;
      case stride0: put(params, f.offset, t->stride[0]); break;
      case stride1: put(params, f.offset, t->stride[1]); break;
      case partials: put(params, f.offset, workspace.data()); break;
      case counters: put(params, f.offset, &counter); break;
      case product: put(params, f.offset, stored.data()); break;
      default: break;
    }
  }
  const auto emulate = reinterpret_cast<void (*)(const void*, int, bool)>(library_->symbol(fmt::format("emulate_{}", index)));
  emulate(params.data(), blocks, backwards);
  if (counter != 0) return fmt::format("the counter was left at {}; ", counter);
  if (!std::all_of(workspace.begin() + static_cast<std::ptrdiff_t>(scratch), workspace.end(), [](std::uint32_t w) { return w == 0xFFFFFFFF; }))
    return "something was written past the workspace; ";
  return {};
}

}  // namespace coda::test

// Running with another number of threads, to show that results don't depend on it.
#pragma once
#include <dlfcn.h>

#include <stdexcept>

namespace coda::test {

/// Sets the number of OpenMP threads of this thread's parallel regions, by way of the run time that the library loaded.
inline void set_threads(int n) {
  using Set = void (*)(int);
  const auto set = reinterpret_cast<Set>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set == nullptr) throw std::runtime_error("no OpenMP run time is loaded");
  set(n);
}

inline int processors() {
  using Get = int (*)();
  const auto get = reinterpret_cast<Get>(dlsym(RTLD_DEFAULT, "omp_get_num_procs"));
  if (get == nullptr) throw std::runtime_error("no OpenMP run time is loaded");
  return get();
}

}  // namespace coda::test

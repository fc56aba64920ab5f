// What the two halves of coda bench share: its options and its CSV.
#pragma once
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli.hpp"

namespace coda::cli {

struct BenchCommand : ProgramOptions {
  bool all = false;
  std::vector<std::string> extents;
  std::string device = "cpu";
  std::string csv, commit = "unknown";
  std::string clock = "wall";
  std::string filter;
  int repeats = 0, threads = 0;
  bool separate = true, tune = false, json = false;
};

int bench_on_gpu(const BenchCommand& o, int device);

/// A CSV that grows a line at a time, so that a run that is broken off keeps what it measured. An empty path: no file.
class Csv {
 public:
  Csv(const std::string& path, const std::string& header);
  void line(const std::string& text);

 private:
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace coda::cli

// The standard programs, read from the source tree.
#pragma once
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "coda/text.hpp"

namespace coda::test {

inline std::vector<std::string> standard_names() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(std::string(CODA_SOURCE_DIR) + "/programs")) {
    if (file.path().extension() == ".coda") names.push_back(file.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline Program standard(const std::string& name, const ParamValues& params = {}) {
  const std::string path = std::string(CODA_SOURCE_DIR) + "/programs/" + name + ".coda";
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return parse(text.str(), params, path);
}

}  // namespace coda::test

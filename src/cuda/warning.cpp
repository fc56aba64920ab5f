#include "coda/warning.hpp"

#include <atomic>
#include <iostream>

namespace coda {
namespace {
std::atomic<WarningHandler> current{nullptr};
}  // namespace

WarningHandler set_warning_handler(WarningHandler handler) noexcept { return current.exchange(handler); }

void warn(const std::string& message) {
  if (WarningHandler handler = current.load()) handler(message);
  else std::cerr << message + "\n";
}

}  // namespace coda

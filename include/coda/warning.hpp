// Warnings: facts that slow a caller down but change no result (a cache directory that can't be written, say).
#pragma once
#include <string>

namespace coda {

using WarningHandler = void (*)(const std::string& message);

/// Sets who hears warnings and returns who did; null restores the default, which writes a line to stderr.
/// Thread-safe; the handler may be called from any thread.
WarningHandler set_warning_handler(WarningHandler handler) noexcept;

/// Hands `message` to the handler.
void warn(const std::string& message);

}  // namespace coda

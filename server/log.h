// The daemon's log: one line an event on standard error, with UTC time and level.
#ifndef PAGODA_SERVER_LOG_H_
#define PAGODA_SERVER_LOG_H_

#include <cstdint>
#include <string_view>

namespace pagoda::server {

enum class LogLevel : uint8_t { kInfo, kWarning, kError };

// Messages below `level` are dropped from now on. All levels are logged at the start.
void SetLogLevel(LogLevel level);

// Writes "2026-01-31T12:34:56.789Z info message". Line breaks in the message become blanks, so that
// a line is an event. Thread-safe; lines do not mix.
void Log(LogLevel level, std::string_view message);

// From now on gRPC's own errors are warnings of this log; its other messages are dropped.
void CaptureGrpcLog();

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_LOG_H_

// The daemon's log: one line per event on standard error, with UTC time and level.
#ifndef PAGODA_SERVER_LOG_LOG_H_
#define PAGODA_SERVER_LOG_LOG_H_

#include <cstdint>
#include <string_view>

namespace pagoda::server {

enum class LogLevel : uint8_t { kInfo, kWarning, kError };

// Drops messages below `level` from now on. Until the first call all levels are logged.
void SetLogLevel(LogLevel level);

// From now on each message begins with "SOURCE: ", for a process whose lines go to the log of
// another one. `source` lives for ever.
void SetLogSource(const char* source);

// Writes "2026-01-31T12:34:56.789Z info message". Line breaks in the message become blanks, because
// one line is one event; Printable escapes everything else that a terminal obeys. Thread-safe;
// lines of different threads do not mix.
void Log(LogLevel level, std::string_view message);

// From now on gRPC's errors are logged here as warnings. Its other messages are dropped.
void CaptureGrpcLog();

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_LOG_LOG_H_

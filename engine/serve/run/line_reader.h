#ifndef PAGODA_ENGINE_SERVE_RUN_LINE_READER_H_
#define PAGODA_ENGINE_SERVE_RUN_LINE_READER_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "base/event_poll.h"

namespace pagoda {

// Reads lines from a file descriptor. Another thread can wake the reader while it waits for a line.
// The last line needs no newline. Thread-compatible, but Wake is thread-safe.
class LineReader {
 public:
  static constexpr size_t kMaxLineBytes = size_t{64} << 20;

  enum class Event { kLine, kEnd, kWoken };

  // Does not own `fd`.
  explicit LineReader(int fd);
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // Waits for the next line, for the end or for Wake. Wake takes precedence. Puts the line into
  // `line` without its newline. Errors: INVALID_ARGUMENT (a line above kMaxLineBytes, or a
  // descriptor that cannot be read).
  absl::StatusOr<Event> Next(std::string& line);

  // Makes the current Next, or the next one, return kWoken.
  void Wake() { poll_.Wake(); }

 private:
  const int fd_;
  EventPoll poll_;
  bool is_watched_;  // False for a file, which epoll refuses: it is always readable.
  std::string buffer_;
  size_t searched_ = 0;  // No newline before this.
  bool ended_ = false;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SERVE_RUN_LINE_READER_H_

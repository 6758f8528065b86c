#ifndef PAGODA_CLIENTS_COMMAND_LINE_TERMINAL_PROGRESS_BAR_H_
#define PAGODA_CLIENTS_COMMAND_LINE_TERMINAL_PROGRESS_BAR_H_

#include <cstdint>
#include <ostream>
#include <string>

#include "absl/time/time.h"
#include "clients/command_line/terminal/terminal.h"

namespace pagoda {

// Shows the progress of a job. On a terminal it redraws one line. Elsewhere it prints a plain line
// every few seconds, so that the log of a long job shows progress and stays short. Drawing is
// rate-limited, so Update can be called often. Thread-compatible.
class ProgressBar {
 public:
  // `out` must outlive the bar. A `total` of 0 is shown as done.
  ProgressBar(std::string label, uint64_t total, const Terminal& terminal, std::ostream& out,
              absl::Time start);

  // Shows `done` of the total, followed by `detail`, if enough time has passed since the last
  // drawing.
  void Update(uint64_t done, const std::string& detail, absl::Time now);

  // Whether the next Update will draw. Check it first if `detail` is costly to make.
  bool Due(absl::Time now) const { return now >= next_draw_; }

  // Removes the line from a terminal. Does nothing without a terminal.
  void Clear();

 private:
  std::string Line(uint64_t done, const std::string& detail) const;

  const std::string label_;
  const uint64_t total_;
  const Terminal terminal_;
  std::ostream& out_;
  absl::Time next_draw_;
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_COMMAND_LINE_TERMINAL_PROGRESS_BAR_H_

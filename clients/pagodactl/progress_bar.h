#ifndef PAGODA_CLIENTS_PAGODACTL_PROGRESS_BAR_H_
#define PAGODA_CLIENTS_PAGODACTL_PROGRESS_BAR_H_

#include <cstdint>
#include <ostream>
#include <string>

#include "absl/time/time.h"
#include "clients/pagodactl/terminal.h"

namespace pagoda {

// Shows how far a job is: one line that is redrawn, on a terminal; elsewhere a plain line every few
// seconds, so that a log of a long job shows life and stays short. Drawing is rate-limited, so
// Update may be called as often as is convenient. Thread-compatible.
class ProgressBar {
 public:
  // `out` outlives the bar. `total` 0 is shown as done.
  ProgressBar(std::string label, uint64_t total, const Terminal& terminal, std::ostream& out,
              absl::Time start);

  // Shows `done` of the total and `detail` behind it, if enough time has passed since the last
  // drawing.
  void Update(uint64_t done, const std::string& detail, absl::Time now);

  // True when the next Update would draw: a caller whose detail is costly asks first.
  bool Due(absl::Time now) const { return now >= next_draw_; }

  // Removes the line from a terminal, to make place for a report. Without a terminal there is
  // nothing to remove.
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

#endif  // PAGODA_CLIENTS_PAGODACTL_PROGRESS_BAR_H_

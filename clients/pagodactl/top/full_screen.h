#ifndef PAGODA_CLIENTS_PAGODACTL_TOP_FULL_SCREEN_H_
#define PAGODA_CLIENTS_PAGODACTL_TOP_FULL_SCREEN_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace pagoda {

// Puts the terminal of standard input and output into full-screen mode while the object exists: the
// alternate screen, no cursor, and keys that are read at once and not echoed. The destructor
// restores the terminal. A fatal signal of the process restores it too. Only one object may exist
// at a time.
class FullScreen {
 public:
  FullScreen();
  ~FullScreen();
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;

  // Replaces the picture. The lines must fit the screen. Errors: ABORTED if the terminal is gone.
  absl::Status Draw(const std::vector<std::string>& lines);

  // Leave restores the terminal for a while; Enter returns to full-screen mode.
  void Leave();
  void Enter();
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_TOP_FULL_SCREEN_H_

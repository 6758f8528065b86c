#ifndef PAGODA_CLIENTS_PAGODACTL_FULL_SCREEN_H_
#define PAGODA_CLIENTS_PAGODACTL_FULL_SCREEN_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace pagoda {

// The terminal of standard input and output as a full-screen program has it, while it lives: the
// other screen, no cursor, and keys that are read at once and not shown. It is as it was
// afterwards, also where the process ends by a fatal error of its own. One at a time.
class FullScreen {
 public:
  FullScreen();
  ~FullScreen();
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;

  // Replaces the picture. The lines fit the screen. Errors: UNAVAILABLE, where the terminal is
  // gone.
  absl::Status Draw(const std::vector<std::string>& lines);

  // Gives the terminal back for a while, and takes it again.
  void Leave();
  void Enter();
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_FULL_SCREEN_H_

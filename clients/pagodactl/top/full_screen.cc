#include "clients/pagodactl/top/full_screen.h"

#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "clients/command_line/terminal/printable_output.h"

namespace pagoda {
namespace {

// kEnter: the alternate screen, a hidden cursor, no wrapping. kLeave undoes it in reverse order.
constexpr char kEnter[] = "\x1b[?1049h\x1b[?25l\x1b[?7l";
constexpr char kLeave[] = "\x1b[?7h\x1b[?25h\x1b[?1049l";

constexpr int kFatalSignals[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL};

// Globals, because the handler of fatal signals can reach nothing else.
termios g_modes;
bool g_has_modes = false;  // Standard input is a terminal; g_modes are its earlier modes.
volatile sig_atomic_t g_entered = 0;

// Writes the whole text. Safe in a signal handler.
bool WriteAll(absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

void Restore() {
  if (g_entered == 0) return;
  g_entered = 0;
  WriteAll(absl::string_view(kLeave, sizeof(kLeave) - 1));
  if (g_has_modes) tcsetattr(STDIN_FILENO, TCSAFLUSH, &g_modes);
}

// SA_RESETHAND has already restored the default action, so raise() ends the process.
void OnFatalSignal(int signal) {
  Restore();
  raise(signal);
}

}  // namespace

FullScreen::FullScreen() {
  g_has_modes = tcgetattr(STDIN_FILENO, &g_modes) == 0;
  struct sigaction action = {};
  action.sa_handler = OnFatalSignal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  for (const int signal : kFatalSignals) sigaction(signal, &action, nullptr);
  Enter();
}

FullScreen::~FullScreen() {
  Leave();
  for (const int number : kFatalSignals) signal(number, SIG_DFL);
}

void FullScreen::Enter() {
  g_entered = 1;
  if (g_has_modes) {
    termios modes = g_modes;
    // ISIG stays set: Ctrl-C and similar keys still send signals.
    modes.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    modes.c_cc[VMIN] = 0;
    modes.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &modes);
  }
  WriteAll(absl::string_view(kEnter, sizeof(kEnter) - 1));
}

void FullScreen::Leave() { Restore(); }

absl::Status FullScreen::Draw(const std::vector<std::string>& lines) {
  // One write over the old picture avoids flicker. Each line clears the rest of its row, and the
  // last one the rows below.
  std::string picture = "\x1b[H";
  for (size_t i = 0; i < lines.size(); ++i) {
    absl::StrAppend(&picture, i == 0 ? "" : "\r\n", ForTerminal(lines[i]), "\x1b[K");
  }
  absl::StrAppend(&picture, "\x1b[J");
  if (WriteAll(picture)) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("the terminal is gone: ", std::strerror(errno)));
}

}  // namespace pagoda

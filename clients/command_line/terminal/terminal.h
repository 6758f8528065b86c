#ifndef PAGODA_CLIENTS_COMMAND_LINE_TERMINAL_TERMINAL_H_
#define PAGODA_CLIENTS_COMMAND_LINE_TERMINAL_TERMINAL_H_

#include <string>

namespace pagoda {

// The abilities of an output stream. The default is a plain file.
struct Terminal {
  bool interactive = false;  // A terminal that a person sees: lines can be redrawn.
  bool color = false;
  bool unicode = false;
  int columns = 80;
  int rows = 0;  // 0: a file, which has no end.
};

// Examines file descriptor `fd` and the environment. NO_COLOR (any value) and TERM=dumb turn
// colours off. The locale decides about Unicode.
Terminal DetectTerminal(int fd);

// In the order of the sequences in printable_output.cc.
enum class Style { kBold, kDim, kRed, kGreen, kYellow, kBlue, kCyan };

// `text` in that style, with marks that ForTerminal turns into colours; unchanged if the terminal
// has no colours.
std::string Paint(const Terminal& terminal, Style style, const std::string& text);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_COMMAND_LINE_TERMINAL_TERMINAL_H_

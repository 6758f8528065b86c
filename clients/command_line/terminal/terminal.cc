#include "clients/command_line/terminal/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "clients/command_line/terminal/printable_output.h"

namespace pagoda {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// POSIX: the first of these variables that is set and not empty decides.
bool LocaleIsUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string locale = Environment(name);
    if (locale.empty()) continue;
    const std::string lower = absl::AsciiStrToLower(locale);
    return absl::StrContains(lower, "utf-8") || absl::StrContains(lower, "utf8");
  }
  return false;
}

winsize SizeOf(int fd) {
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0) size = {};
  if (size.ws_col == 0) size.ws_col = 80;
  if (size.ws_row == 0) size.ws_row = 24;
  return size;
}

}  // namespace

Terminal DetectTerminal(int fd) {
  Terminal terminal;
  if (isatty(fd) == 0) return terminal;
  const bool dumb = Environment("TERM") == "dumb";
  terminal.interactive = !dumb;
  terminal.color = !dumb && std::getenv("NO_COLOR") == nullptr;
  terminal.unicode = !dumb && LocaleIsUtf8();
  const winsize size = SizeOf(fd);
  terminal.columns = size.ws_col;
  terminal.rows = size.ws_row;
  return terminal;
}

std::string Paint(const Terminal& terminal, Style style, const std::string& text) {
  if (!terminal.color) return text;
  const char mark[] = {kMark, static_cast<char>('a' + static_cast<int>(style))};
  const char end[] = {kMark, '0'};
  return absl::StrCat(absl::string_view(mark, 2), text, absl::string_view(end, 2));
}

}  // namespace pagoda

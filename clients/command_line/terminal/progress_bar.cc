#include "clients/command_line/terminal/progress_bar.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clients/command_line/terminal/format.h"
#include "clients/command_line/terminal/printable_output.h"

namespace pagoda {
namespace {

constexpr int kBarWidth = 24;
constexpr absl::Duration kRedrawInterval = absl::Milliseconds(100);
constexpr absl::Duration kLogInterval = absl::Seconds(5);

absl::Duration DrawInterval(const Terminal& terminal) {
  return terminal.interactive ? kRedrawInterval : kLogInterval;
}

// Cuts a line to the terminal's width, because a wrapped line cannot be redrawn. A character is a
// byte that does not continue another one in UTF-8.
std::string CutToColumns(const std::string& line, int columns) {
  int characters = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const bool starts_character = (static_cast<unsigned char>(line[i]) & 0xC0) != 0x80;
    if (starts_character && ++characters >= columns) return line.substr(0, i);
  }
  return line;
}

}  // namespace

// A terminal gets the first drawing at once. A log gets it only if the job takes long.
ProgressBar::ProgressBar(std::string label, uint64_t total, const Terminal& terminal,
                         std::ostream& out, absl::Time start)
    : label_(std::move(label)),
      total_(total),
      terminal_(terminal),
      out_(out),
      next_draw_(terminal.interactive ? start : start + kLogInterval) {}

void ProgressBar::Update(uint64_t done, const std::string& detail, absl::Time now) {
  if (!Due(now)) return;
  next_draw_ = now + DrawInterval(terminal_);
  if (terminal_.interactive) {
    out_ << kClearLine << CutToColumns(Line(done, detail), terminal_.columns) << std::flush;
  } else {
    out_ << Line(done, detail) << std::endl;
  }
}

void ProgressBar::Clear() {
  if (terminal_.interactive) out_ << kClearLine << std::flush;
}

std::string ProgressBar::Line(uint64_t done, const std::string& detail) const {
  const double share = total_ == 0 ? 1.0 : Share(done, total_);
  std::string line = label_;
  if (terminal_.interactive) absl::StrAppend(&line, " ", Bar(terminal_, share, kBarWidth));
  absl::StrAppendFormat(&line, " %3.0f %% %s/%s", share * 100, FormatCount(done),
                        FormatCount(total_));
  if (!detail.empty()) absl::StrAppend(&line, "  ", detail);
  return line;
}

}  // namespace pagoda

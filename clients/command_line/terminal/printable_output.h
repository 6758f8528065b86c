// What the command line writes to a terminal: its own colours, and nothing else that it obeys.
#ifndef PAGODA_CLIENTS_COMMAND_LINE_TERMINAL_PRINTABLE_OUTPUT_H_
#define PAGODA_CLIENTS_COMMAND_LINE_TERMINAL_PRINTABLE_OUTPUT_H_

#include <iostream>
#include <memory>
#include <streambuf>
#include <string>
#include <string_view>

#include "absl/strings/str_format.h"

namespace pagoda {

// A control sequence in the text of a program is kMark and a letter until ForTerminal replaces it.
// No UTF-8 text has this byte, so no name or message of another process can hold a mark: strings of
// protobuf are UTF-8, and the texts of errors are Printable.
inline constexpr char kMark = '\xff';
inline constexpr std::string_view kClearLine = "\xff\x4c";    // And goes to the line's begin.
inline constexpr std::string_view kClearScreen = "\xff\x53";  // And goes to its first line.

// The text with its marks as a terminal's control sequences. Line ends and tabs stay; Printable
// makes everything else harmless.
std::string ForTerminal(std::string_view text);

// While it lives, std::cout and std::cerr write ForTerminal of their texts. The entry function of
// each program has one. REQUIRES: one at a time, and no other thread writes at its begin and end.
class PrintableOutput {
 public:
  PrintableOutput();
  ~PrintableOutput();
  PrintableOutput(const PrintableOutput&) = delete;
  PrintableOutput& operator=(const PrintableOutput&) = delete;

 private:
  friend void PrintAnswer(std::string_view text);
  class Buffer;
  const std::unique_ptr<Buffer> out_, errors_;
};

// Writes a model's text to standard output at once. A file or a pipe gets its bytes as they are.
void PrintAnswer(std::string_view text);

// Does what absl::PrintF does, on std::cout.
template <typename... Args>
void Print(const absl::FormatSpec<Args...>& format, const Args&... args) {
  std::cout << absl::StrFormat(format, args...);
}

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_COMMAND_LINE_TERMINAL_PRINTABLE_OUTPUT_H_

#include "clients/command_line/terminal/printable_output.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/printable.h"

namespace pagoda {
namespace {

constexpr size_t kMostHeldBytes = size_t{64} << 10;

// Empty: there is no such mark. The letter of a style is 'a' and more; see Paint.
std::string_view SequenceOf(char letter) {
  constexpr std::string_view kStyles[] = {"\x1b[1m",  "\x1b[2m",  "\x1b[31m", "\x1b[32m",
                                          "\x1b[33m", "\x1b[34m", "\x1b[36m"};
  if (letter == '0') return "\x1b[0m";
  if (letter == kClearLine[1]) return "\r\x1b[K";
  if (letter == kClearScreen[1]) return "\x1b[H\x1b[2J";
  const size_t style = static_cast<size_t>(letter - 'a');
  return letter >= 'a' && style < std::size(kStyles) ? kStyles[style] : "";
}

}  // namespace

std::string ForTerminal(std::string_view text) {
  constexpr std::string_view kKept("\n\t\xff");
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const size_t plain = std::min(text.find_first_of(kKept), text.size());
    shown += Printable(text.substr(0, plain));
    text.remove_prefix(plain);
    if (text.empty()) break;
    const std::string_view sequence =
        text[0] == kMark && text.size() > 1 ? SequenceOf(text[1]) : std::string_view();
    if (!sequence.empty()) {
      shown += sequence;
    } else {
      shown += text[0] == kMark ? Printable(text.substr(0, 1)) : std::string(text.substr(0, 1));
    }
    text.remove_prefix(sequence.empty() ? 1 : 2);
  }
  return shown;
}

// Holds text until a flush, so that no character is in two parts. Thread-safe, as std::cout is.
class PrintableOutput::Buffer final : public std::streambuf {
 public:
  explicit Buffer(std::ostream& stream) : stream_(stream), sink_(stream.rdbuf(this)) {}
  ~Buffer() override {
    sync();
    stream_.rdbuf(sink_);
  }

  void WriteAsItIs(std::string_view text) ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::MutexLock lock(&mutex_);
    if (!WriteHeld(held_.size()) || !Write(text)) stream_.setstate(std::ios_base::badbit);
  }

 protected:
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    const char one = traits_type::to_char_type(c);
    return xsputn(&one, 1) == 1 ? c : traits_type::eof();
  }
  std::streamsize xsputn(const char* text, std::streamsize count) override
      ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::MutexLock lock(&mutex_);
    held_.append(text, static_cast<size_t>(count));
    const size_t whole_lines = held_.size() < kMostHeldBytes ? 0 : held_.rfind('\n') + 1;
    return whole_lines == 0 || WriteHeld(whole_lines) ? count : 0;
  }
  int sync() override ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::MutexLock lock(&mutex_);
    return WriteHeld(held_.size()) && sink_->pubsync() == 0 ? 0 : -1;
  }

 private:
  bool Write(std::string_view text) {
    const auto count = static_cast<std::streamsize>(text.size());
    return sink_->sputn(text.data(), count) == count;
  }
  bool WriteHeld(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const std::string shown = ForTerminal(std::string_view(held_).substr(0, bytes));
    held_.erase(0, bytes);
    return Write(shown);
  }

  std::ostream& stream_;
  std::streambuf* const sink_;
  absl::Mutex mutex_;
  std::string held_ ABSL_GUARDED_BY(mutex_);
};

PrintableOutput::PrintableOutput()
    : out_(std::make_unique<Buffer>(std::cout)), errors_(std::make_unique<Buffer>(std::cerr)) {}

PrintableOutput::~PrintableOutput() = default;

void PrintAnswer(std::string_view text) {
  auto* const buffer = dynamic_cast<PrintableOutput::Buffer*>(std::cout.rdbuf());
  if (buffer == nullptr || isatty(STDOUT_FILENO) != 0) {
    std::cout << text;
  } else {
    buffer->WriteAsItIs(text);
  }
  std::cout.flush();
}

}  // namespace pagoda

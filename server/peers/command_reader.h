// Takes commands of RESP out of bytes that come in parts.
#ifndef PAGODA_SERVER_PEERS_COMMAND_READER_H_
#define PAGODA_SERVER_PEERS_COMMAND_READER_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pagoda::server {

// A command is an array of bulks. Keeps at most kKeptBytes of a command, and skips the rest: so a
// SET of a large value costs no memory, and can be answered. Thread-compatible.
class CommandReader {
 public:
  static constexpr size_t kKeptBytes = 256 << 10;
  // What a peer may send. Anything beyond is an error.
  struct Limits {
    size_t arguments = 0;
    size_t argument_bytes = 0;
  };

  // Takes bytes from the front of `input`, up to the end of a command or all but the beginning of a
  // line. True: arguments() is a command. InvalidArgument, with a text for the peer: this is no
  // command, and what follows has no meaning.
  absl::StatusOr<bool> Next(absl::string_view& input, const Limits& limits);

  // The arguments of the last command, without the bytes that were skipped.
  const std::vector<std::string>& arguments() const { return arguments_; }
  // Whether bytes of it were skipped.
  bool is_cut() const { return is_cut_; }

 private:
  void Keep(absl::string_view bytes);

  std::vector<std::string> arguments_;
  size_t kept_ = 0;
  bool is_cut_ = false;
  bool is_whole_ = true;       // arguments_ is a command that was returned.
  size_t arguments_left_ = 0;  // Arguments whose lengths have not arrived.
  bool in_argument_ = false;
  size_t bytes_left_ = 0;  // Missing bytes of the argument and of its line end.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_PEERS_COMMAND_READER_H_

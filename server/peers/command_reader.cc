#include "server/peers/command_reader.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pools/store/resp.h"

namespace pagoda::server {
namespace {

constexpr size_t kLineEnd = 2;

absl::Status ProtocolError(absl::string_view what) { return absl::InvalidArgumentError(what); }

}  // namespace

absl::StatusOr<bool> CommandReader::Next(absl::string_view& input, const Limits& limits) {
  while (true) {
    if (in_argument_) {
      // The line end is not kept. It may have any bytes: the lengths alone say where things are.
      const size_t taken = std::min(bytes_left_, input.size());
      const size_t content = bytes_left_ > kLineEnd ? bytes_left_ - kLineEnd : 0;
      Keep(input.substr(0, std::min(taken, content)));
      input.remove_prefix(taken);
      bytes_left_ -= taken;
      if (bytes_left_ > 0) return false;
      in_argument_ = false;
      if (arguments_left_ > 0) continue;
      is_whole_ = true;
      return true;
    }
    if (input.empty()) return false;
    if (is_whole_ && input[0] != '*') return ProtocolError("expected '*'");
    if (!is_whole_ && input[0] != '$') return ProtocolError("expected '$'");
    const absl::StatusOr<std::optional<resp::Head>> head = resp::ParseHead(input);
    if (!head.ok()) return ProtocolError("invalid length");
    if (!head->has_value()) return false;
    const resp::Head& line = **head;
    input.remove_prefix(line.line_bytes);
    const auto number = static_cast<size_t>(line.number);
    if (is_whole_) {
      if (number > limits.arguments) return ProtocolError("too many arguments");
      // An empty array is no command.
      if (number == 0) continue;
      arguments_.clear();
      kept_ = 0;
      is_cut_ = is_whole_ = false;
      arguments_left_ = number;
      continue;
    }
    if (line.kind != resp::Kind::kBulk) return ProtocolError("expected '$'");
    if (number > limits.argument_bytes) return ProtocolError("an argument is too long");
    --arguments_left_;
    arguments_.emplace_back();
    in_argument_ = true;
    bytes_left_ = number + kLineEnd;
  }
}

void CommandReader::Keep(absl::string_view bytes) {
  const size_t kept = std::min(bytes.size(), kKeptBytes - kept_);
  arguments_.back().append(bytes.data(), kept);
  kept_ += kept;
  is_cut_ = is_cut_ || kept < bytes.size();
}

}  // namespace pagoda::server

#include "server/peers/peer_connection.h"

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "pools/store/resp.h"

namespace pagoda::server {
namespace {

// The limits for clients that have not authenticated. Redis has the same.
constexpr CommandReader::Limits kStranger = {.arguments = 10, .argument_bytes = 16 << 10};
constexpr CommandReader::Limits kLetIn = {.arguments = 1025, .argument_bytes = resp::kMaxBulkBytes};
constexpr size_t kPieces = 64;  // In one call of the system.

}  // namespace

void PeerConnection::Fail(absl::Status why) {
  is_ended_ = true;
  if (error_.ok()) error_ = std::move(why);
}

PeerConnection::Next PeerConnection::Turn(absl::Time now) {
  session_.now = now;
  if (!is_ready_) {
    const absl::StatusOr<bool> done = socket_->Handshake();
    if (!done.ok()) {
      Fail(done.status());
      return Next::kClose;
    }
    if (!*done) return Next::kSocket;
    is_ready_ = true;
    progress_ = now;
  }
  bytes_left_ = kTurnBytes;
  received_ = 0;
  commands_left_ = kTurnCommands;
  while (true) {
    switch (Send(now)) {
      case Sent::kAll:
        break;
      case Sent::kTurnIsOver:
        return Next::kTurn;
      case Sent::kBlocked:
        return Next::kSocket;
      case Sent::kFailed:
        return Next::kClose;
    }
    if (is_ended_ || session_.is_closing) return Next::kClose;
    if (commands_left_ == 0 || received_ >= kTurnBytes) return Next::kTurn;
    if (!RunCommands(now) && out_.empty()) return is_ended_ ? Next::kClose : Next::kSocket;
  }
}

PeerConnection::Sent PeerConnection::Send(absl::Time now) {
  while (!out_.empty()) {
    if (bytes_left_ == 0) return Sent::kTurnIsOver;
    std::array<iovec, kPieces> pieces;
    const size_t count = out_.Peek(absl::MakeSpan(pieces), bytes_left_, buffer_of_sends_);
    const absl::StatusOr<size_t> sent = socket_->Write(absl::MakeSpan(pieces).first(count));
    if (!sent.ok()) {
      // The peer has gone.
      is_ended_ = true;
      return Sent::kFailed;
    }
    if (*sent == 0) return Sent::kBlocked;
    out_.Advance(*sent);
    bytes_left_ -= *sent;
    stats_.bytes_sent += *sent;
    progress_ = now;
  }
  return Sent::kAll;
}

bool PeerConnection::RunCommands(absl::Time now) {
  while (!is_ended_ && !session_.is_closing && out_.bytes() < kShortReplies && commands_left_ > 0) {
    absl::string_view input(buffer_.data() + begin_, end_ - begin_);
    const absl::StatusOr<bool> complete =
        reader_.Next(input, session_.is_let_in ? kLetIn : kStranger);
    begin_ = end_ - input.size();
    if (!complete.ok()) {
      out_.AddError(absl::StrCat("ERR Protocol error: ", complete.status().message()));
      Fail(complete.status());
      return true;
    }
    if (!*complete) {
      if (received_ >= kTurnBytes) return true;
      if (!Receive(now)) return false;
      continue;
    }
    --commands_left_;
    commands_.Run(reader_.arguments(), reader_.is_cut(), session_, out_);
    answer_size_ = out_.bytes();
    answered_ = now;
  }
  return true;
}

bool PeerConnection::Receive(absl::Time now) {
  // What is left is the beginning of a line, which is shorter than the buffer.
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  const iovec piece = {.iov_base = buffer_.data() + end_, .iov_len = buffer_.size() - end_};
  const absl::StatusOr<size_t> read = socket_->Read({&piece, 1});
  if (!read.ok()) {
    is_ended_ = true;
    return false;
  }
  end_ += *read;
  received_ += *read;
  if (*read > 0) progress_ = now;
  return *read > 0;
}

}  // namespace pagoda::server

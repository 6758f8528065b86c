#include "clients/cpp/batch_sender.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/time/clock.h"

namespace pagoda {

absl::Status BatchSender::UseRings(std::string map_socket, absl::Duration timeout) {
  absl::StatusOr<std::unique_ptr<RingStream>> rings =
      RingStream::Open(map_socket, session_, timeout);
  if (absl::IsUnimplemented(rings.status())) return rings.status();
  map_socket_ = std::move(map_socket);
  reopen_pause_ = retry_.first_pause;
  reopen_at_ = absl::Now() + reopen_pause_;
  if (rings.ok()) rings_ = *std::move(rings);
  return rings.status();
}

absl::StatusOr<v1::SessionResponse> BatchSender::Send(v1::SessionRequest& request, Resend resend,
                                                      absl::Time deadline, bool& sent) {
  // A batch that cannot be sent again goes over gRPC: its answer may be too long for the ring.
  if (resend == Resend::kNever) return SendOverGrpc(request, deadline, sent);
  if (rings_ == nullptr) Reopen();
  if (rings_ != nullptr) {
    absl::StatusOr<std::optional<v1::SessionResponse>> answer =
        rings_->Call(request, deadline, sent);
    if (!rings_->ended().ok()) DropRings();
    if (!answer.ok()) return answer.status();
    if (answer->has_value()) {
      reopen_pause_ = retry_.first_pause;
      return **std::move(answer);
    }
  }
  return SendOverGrpc(request, deadline, sent);
}

absl::StatusOr<v1::SessionResponse> BatchSender::SendOverGrpc(v1::SessionRequest& request,
                                                              absl::Time deadline, bool& sent) {
  if (stream_ == nullptr) {
    stream_ = std::make_unique<SessionStream>(*stub_);
    if (absl::Status status = stream_->Start(deadline); !status.ok()) {
      stream_.reset();
      return status;
    }
    *request.mutable_session() = session_;
  }
  sent = true;
  absl::StatusOr<v1::SessionResponse> response = stream_->Call(request, deadline);
  if (!response.ok()) stream_.reset();
  return response;
}

void BatchSender::Reset() {
  stream_.reset();
  if (rings_ != nullptr) DropRings();
}

void BatchSender::Reopen() {
  if (map_socket_.empty() || absl::Now() < reopen_at_) return;
  absl::StatusOr<std::unique_ptr<RingStream>> rings =
      RingStream::Open(map_socket_, session_, retry_.timeout);
  if (rings.ok()) {
    rings_ = *std::move(rings);
  } else if (absl::IsUnimplemented(rings.status())) {
    map_socket_.clear();
  } else {
    reopen_at_ = absl::Now() + reopen_pause_;
    reopen_pause_ = std::min(2 * reopen_pause_, retry_.most_pause);
  }
}

void BatchSender::DropRings() {
  rings_.reset();
  reopen_at_ = absl::Now() + reopen_pause_;
  reopen_pause_ = std::min(2 * reopen_pause_, retry_.most_pause);
}

}  // namespace pagoda

#include "clients/cpp/ring_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "clients/cpp/map_socket_call.h"
#include "google/rpc/status.pb.h"
#include "pagoda/v1/mapping.pb.h"
#include "wire/errors.h"

namespace pagoda {
namespace {

// No batch waits longer.
constexpr absl::Duration kLongestWait = absl::Hours(24);

ring::Clock::time_point SteadyDeadline(absl::Time deadline) {
  const absl::Duration left = std::min(deadline - absl::Now(), kLongestWait);
  return ring::Clock::now() + absl::ToChronoNanoseconds(left);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RingStream>> RingStream::Open(const std::string& map_socket,
                                                             const v1::SessionRef& session,
                                                             absl::Duration timeout) {
  v1::MapPoolsRequest request;
  *request.mutable_session() = session;
  request.mutable_rings();
  absl::StatusOr<MapSocketAnswer> answer = CallMapSocket(map_socket, request, timeout);
  if (!answer.ok()) return answer.status();
  if (answer->descriptors.size() != 2) {
    return absl::InternalError(absl::StrCat("map socket ", map_socket, ": rings without memory"));
  }
  const v1::RingPair& pair = answer->response.rings();
  if (pair.version() != ring::kVersion) {
    return absl::UnimplementedError(absl::StrCat("the daemon's rings have version ", pair.version(),
                                                 ", this client knows ", ring::kVersion));
  }
  std::string error;
  std::unique_ptr<ring::Client> rings =
      ring::Client::Open(std::move(answer->descriptors[0]), std::move(answer->descriptors[1]),
                         pair.version(), pair.bytes(), &error);
  if (rings == nullptr) return absl::InternalError(error);
  return std::unique_ptr<RingStream>(new RingStream(std::move(rings)));
}

absl::StatusOr<std::optional<v1::SessionResponse>> RingStream::Call(
    const v1::SessionRequest& request, absl::Time deadline, bool& sent) {
  using Outcome = ring::Client::Outcome;
  if (!ended_.ok() || request.ByteSizeLong() > rings_->max_request_bytes()) return std::nullopt;
  if (absl::Now() >= deadline) {
    return absl::DeadlineExceededError("the deadline was over before the batch was sent");
  }
  request.SerializeToString(&bytes_);
  Outcome outcome = rings_->Send(bytes_);
  if (outcome == Outcome::kOk) {
    sent = true;
    outcome = rings_->Receive(SteadyDeadline(deadline), &bytes_);
  }
  v1::SessionResponse response;
  switch (outcome) {
    case Outcome::kOk:
      if (response.ParseFromString(bytes_)) return response;
      ended_ = absl::InternalError("the daemon's answer is not a SessionResponse");
      return std::nullopt;
    case Outcome::kRefused: {
      google::rpc::Status refusal;
      if (refusal.ParseFromString(bytes_) && refusal.code() != 0) return StatusFromProto(refusal);
      ended_ = absl::InternalError("the daemon's refusal is not a Status");
      return std::nullopt;
    }
    case Outcome::kRequestTooLarge:
    case Outcome::kAnswerTooLarge:
      return std::nullopt;
    case Outcome::kTimeout:
      // The late answer would be taken for that of the next batch.
      ended_ = absl::DeadlineExceededError("the daemon did not answer the batch in time");
      return ended_;
    case Outcome::kEnded:
      End();
      return std::nullopt;
  }
  return std::nullopt;
}

void RingStream::End() {
  google::rpc::Status reason;
  if (!rings_->reason().empty() && reason.ParseFromString(rings_->reason())) {
    ended_ = StatusFromProto(reason);
  }
  if (ended_.ok()) ended_ = absl::UnavailableError(rings_->error());
}

}  // namespace pagoda

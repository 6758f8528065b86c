#include "wire/ring/ring_client.h"

#include <poll.h>

#include <algorithm>
#include <utility>

namespace pagoda::ring {
namespace {

// The longest sleep in one call of the system, so that no deadline is too far for it.
constexpr std::chrono::milliseconds kLongestSleep = std::chrono::seconds(10);

// The reason by which the daemon ended the pair; empty if there is none.
std::string ReasonIn(const Ending& ending) {
  const uint32_t state = ending.state.load(std::memory_order_acquire);
  if (state == 0 || state - 1 > kMaxReasonBytes) return "";
  return std::string(ending.reason.data(), state - 1);
}

}  // namespace

std::unique_ptr<Client> Client::Open(FileDescriptor memory, FileDescriptor wake, uint32_t version,
                                     uint32_t bytes, std::string* error) {
  std::unique_ptr<Memory> mapped = Memory::Map(memory, version, bytes, error);
  if (mapped == nullptr) return nullptr;
  return std::unique_ptr<Client>(new Client(std::move(mapped), std::move(wake)));
}

Client::Client(std::unique_ptr<Memory> memory, FileDescriptor wake)
    : memory_(std::move(memory)),
      wake_(std::move(wake)),
      requests_(&memory_->control().requests, memory_->requests(), memory_->bytes()),
      answers_(&memory_->control().answers, memory_->answers(), memory_->bytes()) {}

Client::Outcome Client::Send(std::string_view request) {
  if (ended_) return Outcome::kEnded;
  if (!memory_->InOwner()) return End("the rings belong to the parent process");
  if (memory_->control().ending.state.load(std::memory_order_acquire) != 0) {
    return End("the daemon has ended the pair");
  }
  switch (requests_.Write(Kind::kRequest, request)) {
    case Writer::Outcome::kWritten:
      if (requests_.ReaderWaits()) Wake(wake_.get());
      return Outcome::kOk;
    case Writer::Outcome::kTooLarge:
      return Outcome::kRequestTooLarge;
    case Writer::Outcome::kNoRoom:
      return End("the daemon has not taken the earlier requests");
    case Writer::Outcome::kCorrupt:
      break;
  }
  return End("the ring of requests is damaged");
}

Client::Outcome Client::Receive(Clock::time_point deadline, std::string* answer) {
  if (ended_) return Outcome::kEnded;
  if (!memory_->InOwner()) return End("the rings belong to the parent process");
  const Clock::time_point began = Clock::now();
  const auto ready = [this] { return Ready(); };
  if (SpinUntil(ready, std::min(spin_.budget(), deadline - began))) {
    spin_.Learn(Spin::End::kWhileSpinning, Clock::now() - began);
    return TakeAnswer(answer);
  }
  const bool is_ready = Sleep(deadline);
  spin_.Learn(Spin::End::kAfterSleep, Clock::now() - began);
  return is_ready ? TakeAnswer(answer) : Outcome::kTimeout;
}

bool Client::Ready() const {
  return answers_.HasMessage() || closed_ ||
         memory_->control().ending.state.load(std::memory_order_acquire) != 0;
}

bool Client::Sleep(Clock::time_point deadline) {
  while (!Ready()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return false;
    if (!answers_.BeginWait()) return true;
    pollfd waiting = {.fd = wake_.get(), .events = POLLIN, .revents = 0};
    const int ready = poll(&waiting, 1, static_cast<int>(std::min(left, kLongestSleep).count()));
    answers_.EndWait();
    if (ready > 0 && TakeWakes(wake_.get()) == Taken::kClosed) closed_ = true;
  }
  return true;
}

// An answer that arrived before the end counts.
Client::Outcome Client::TakeAnswer(std::string* answer) {
  Kind kind;
  switch (answers_.Read(&kind, answer)) {
    case Reader::Outcome::kMessage:
      if (kind == Kind::kAnswer) return Outcome::kOk;
      if (kind == Kind::kAnswerTooLarge) return Outcome::kAnswerTooLarge;
      if (kind == Kind::kRefusal) return Outcome::kRefused;
      return End("the daemon sent a message of another kind");
    case Reader::Outcome::kEmpty:
      return End(closed_ ? "the daemon has closed the pair" : "the daemon has ended the pair");
    case Reader::Outcome::kCorrupt:
      break;
  }
  return End("the ring of answers is damaged");
}

Client::Outcome Client::End(std::string error) {
  ended_ = true;
  error_ = std::move(error);
  if (memory_->InOwner()) reason_ = ReasonIn(memory_->control().ending);
  return Outcome::kEnded;
}

}  // namespace pagoda::ring

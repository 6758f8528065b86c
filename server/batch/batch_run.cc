#include "server/batch/batch_run.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "base/error.h"
#include "wire/errors.h"
#include "wire/operations.h"
#include "wire/served_fields.h"

namespace pagoda::server {
namespace {

absl::StatusOr<Operation> Decode(const v1::Operation& proto) {
  if (absl::Status status = CheckServed(proto); !status.ok()) return status;
  return OperationFromProto(proto);
}

}  // namespace

void BatchRun::Start(const v1::Batch& batch, uint64_t fingerprint,
                     absl::FunctionRef<void()> on_read) {
  const uint64_t retry_id = batch.retry_id();
  if (const absl::Status status = Read(batch); !status.ok()) return Finish(status);
  on_read();
  if (retry_id != 0) {
    if (RanBefore(retry_id, fingerprint)) return;
    retry_id_ = retry_id;
  }
  Advance();
}

bool BatchRun::RanBefore(uint64_t retry_id, uint64_t fingerprint) {
  BatchAnswer answer;
  const absl::StatusOr<AnswerMemory::Begun> begun = context_.answers->Begin(
      session_, retry_id, fingerprint, &answer,
      [run = shared_from_this()](const absl::StatusOr<BatchAnswer>& first) { run->Answer(first); });
  if (begun.ok() && *begun == AnswerMemory::Begun::kRun) return false;
  if (begun.ok() && *begun == AnswerMemory::Begun::kWaits) {
    operations_ = {};  // Only the first run needs them.
    return true;
  }
  // The session can have ended since.
  const absl::Status session =
      context_.manager->Read([&](const BlockManager& core) { return core.CheckSession(session_); });
  if (!session.ok()) {
    Answer(session);
  } else if (!begun.ok()) {
    Answer(begun.status());
  } else {
    Answer(std::move(answer));
  }
  return true;
}

void BatchRun::Finish(const absl::Status& status) {
  const absl::StatusOr<BatchAnswer> outcome = status.ok() ? EndAnswer() : status;
  if (retry_id_ != 0) context_.answers->End(session_, std::exchange(retry_id_, 0), outcome);
  Answer(outcome);
}

absl::StatusOr<BatchAnswer> BatchRun::EndAnswer() {
  AddRefused(SIZE_MAX);
  std::string bytes = answer_.End(state_);
  if (retry_id_ != 0) bytes.shrink_to_fit();  // What is kept is counted by its size.
  if (bytes.size() <= INT32_MAX) return std::make_shared<const std::string>(std::move(bytes));
  return absl::InternalError("the answer cannot be sent: it has more than 2 GiB");
}

void BatchRun::Answer(const absl::StatusOr<BatchAnswer>& outcome) {
  if (context_.metrics != nullptr) context_.metrics->RecordBatch(absl::Now() - begun_);
  const Done done = std::exchange(done_, nullptr);
  done(outcome);
}

absl::Status BatchRun::Read(const v1::Batch& batch) {
  const auto count = static_cast<size_t>(batch.operations_size());
  if (count > kMaxBatchOperations) {
    return MakeError(Reason::kBatchTooLarge,
                     absl::StrCat("the batch has ", count, " operations; at most ",
                                  kMaxBatchOperations, " are allowed"));
  }
  steps_ = StepsFromProto(batch);
  operations_.reserve(count);
  places_.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    absl::StatusOr<Operation> operation = Decode(batch.operations(static_cast<int>(i)));
    if (operation.ok()) {
      operations_.push_back(*std::move(operation));
      places_.push_back(i);
    } else {
      refused_.push_back({i, operation.status()});
    }
  }
  return absl::OkStatus();
}

void BatchRun::Advance() {
  do {
    const size_t end = EndOfPart();
    absl::StatusOr<BatchResult> part = context_.manager->ExecuteUntilWait(
        session_, absl::MakeConstSpan(operations_).subspan(next_, end - next_), steps_, handles_);
    if (!part.ok()) {
      if (next_ == 0 && waited_ == 0) return Finish(part.status());
      Refuse(part.status());
      break;
    }
    Take(*std::move(part));
    if (next_ == end) continue;
    if (waited_ <= next_) {
      if (Suspend(std::get<WaitForTicket>(operations_[next_]))) return;
      waited_ = next_ + 1;
    } else {
      Add(WaitError());
    }
  } while (next_ < operations_.size());
  Finish(absl::OkStatus());
}

size_t BatchRun::EndOfPart() const {
  if (deadline_ == absl::InfiniteFuture()) return operations_.size();
  size_t end = next_;
  while (end < operations_.size() && !std::holds_alternative<WaitForTicket>(operations_[end])) {
    ++end;
  }
  return std::min(end + 1, operations_.size());
}

void BatchRun::Take(BatchResult part) {
  for (const absl::StatusOr<OperationResult>& result : part.results) {
    if (result.ok()) handles_ += CountHandles(*result);
    Add(result);
  }
  part.results.clear();
  state_ = std::move(part);
}

void BatchRun::Add(const absl::StatusOr<OperationResult>& result) {
  AddRefused(places_[next_++]);
  answer_.Add(result);
}

void BatchRun::AddRefused(size_t before) {
  for (; next_refused_ < refused_.size() && refused_[next_refused_].place < before;
       ++next_refused_) {
    answer_.Add(refused_[next_refused_].error);
  }
}

void BatchRun::Refuse(const absl::Status& error) {
  while (next_ < operations_.size()) Add(error);
}

bool BatchRun::Suspend(const WaitForTicket& wait) {
  // If the session has just ended, the next part reports that.
  if (!context_.manager->AttachStream(session_).ok()) return false;
  const size_t operation = next_;
  if (deadline_ == absl::InfiniteFuture()) deadline_ = absl::Now() + kMaxTicketWait;
  // Either the drain finds the batch in the set, or this check finds the drain.
  context_.waiting->Add(shared_from_this());
  if (const absl::Status status = context_.state->CheckAcceptsWork(); !status.ok()) {
    EndWaits(status);
  }
  // A wait that cannot begin registers nothing: a batch can have thousands of them.
  if (absl::Now() >= deadline_ || HasEnded()) {
    Resume();
    return false;
  }
  // A weak reference: a copy can outlast the batch that waited for it.
  context_.manager->NotifyWhenDone(wait.lane, wait.ticket, [weak = weak_from_this(), operation] {
    if (const std::shared_ptr<BatchRun> run = weak.lock()) run->CopiesDone(operation);
  });
  {
    absl::MutexLock lock(&mutex_);
    if (!end_.has_value() && copies_done_ <= operation) {
      // From here on another thread can run the batch.
      alarm_ = std::make_unique<grpc::Alarm>();
      alarm_->Set(absl::ToChronoTime(deadline_),
                  [run = shared_from_this()](bool) { run->WakeUp(); });
      return true;
    }
  }
  Resume();
  return false;
}

void BatchRun::WakeUp() {
  {
    absl::MutexLock lock(&mutex_);
    alarm_.reset();
  }
  Resume();
  waited_ = next_ + 1;
  context_.RunOn(operations_.size() - next_, [run = shared_from_this()] { run->Advance(); });
}

void BatchRun::Resume() {
  context_.waiting->Remove(this);
  context_.manager->DetachStream(session_.id);
}

void BatchRun::CopiesDone(size_t operation) {
  absl::MutexLock lock(&mutex_);
  copies_done_ = std::max(copies_done_, operation + 1);
  // An earlier wait can end before its copies are done. The alarm then belongs to a later wait.
  if (alarm_ != nullptr && copies_done_ > next_) alarm_->Cancel();
}

void BatchRun::EndWaits(const absl::Status& error) {
  absl::MutexLock lock(&mutex_);
  end_ = error;
  if (alarm_ != nullptr) alarm_->Cancel();
}

bool BatchRun::HasEnded() const {
  absl::MutexLock lock(&mutex_);
  return end_.has_value();
}

absl::Status BatchRun::WaitError() const {
  absl::MutexLock lock(&mutex_);
  if (end_.has_value()) return *end_;
  return MakeError(Reason::kWaitTimeout, absl::StrCat("the copies were not done after ",
                                                      absl::FormatDuration(kMaxTicketWait),
                                                      ", the longest time that a batch waits"));
}

}  // namespace pagoda::server

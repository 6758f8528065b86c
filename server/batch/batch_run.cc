#include "server/batch/batch_run.h"

#include <algorithm>
#include <deque>
#include <variant>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "base/error.h"
#include "google/protobuf/repeated_field.h"
#include "wire/errors.h"
#include "wire/operations.h"
#include "wire/results.h"
#include "wire/served_fields.h"

namespace pagoda::server {
namespace {

absl::StatusOr<Operation> Decode(const v1::Operation& proto) {
  if (absl::Status status = CheckServed(proto); !status.ok()) return status;
  return OperationFromProto(proto);
}

// Prompts from this length on are hashed as they lie in memory: serialized again, 7,000 tokens
// would take 12 to 30 us.
constexpr int kLongPrompt = 256;

using Prompt = google::protobuf::RepeatedField<uint32_t>;

// The long prompt of an operation that opens a sequence or asks about a prompt; nullptr if it has
// none.
Prompt* LongPromptOf(v1::Operation& operation) {
  Prompt* prompt = nullptr;
  switch (operation.operation_case()) {
    case v1::Operation::kAddSequence:
      prompt = operation.mutable_add_sequence()->mutable_tokens();
      break;
    case v1::Operation::kMatchPrefix:
      prompt = operation.mutable_match_prefix()->mutable_tokens();
      break;
    case v1::Operation::kQueryCapacity:
      prompt = operation.mutable_query_capacity()->mutable_tokens();
      break;
    default:
      break;
  }
  return prompt != nullptr && prompt->size() >= kLongPrompt ? prompt : nullptr;
}

// Takes a prompt out of its operation, without a copy, and puts it back at the end.
class PromptAside {
 public:
  explicit PromptAside(Prompt* prompt) : prompt_(prompt), aside_(prompt->GetArena()) {
    prompt_->UnsafeArenaSwap(&aside_);  // Both are in the same arena.
  }
  ~PromptAside() { prompt_->UnsafeArenaSwap(&aside_); }
  PromptAside(const PromptAside&) = delete;
  PromptAside& operator=(const PromptAside&) = delete;

 private:
  Prompt* const prompt_;
  Prompt aside_;
};

// Tells a batch from others under the same retry_id. It does not depend on how the bytes of the
// batch were made. A long prompt counts with the place of its operation.
uint64_t FingerprintOf(v1::Batch& batch) {
  uint64_t prompts = 0;
  std::deque<PromptAside> aside;
  for (int i = 0; i < batch.operations_size(); ++i) {
    Prompt* const prompt = LongPromptOf(*batch.mutable_operations(i));
    if (prompt == nullptr) continue;
    prompts = absl::HashOf(prompts, i, absl::MakeConstSpan(*prompt));
    aside.emplace_back(prompt);
  }
  return absl::HashOf(prompts, batch.SerializeAsString());
}

}  // namespace

void BatchRun::Start(v1::Batch& batch) {
  if (batch.retry_id() != 0) {
    const absl::StatusOr<bool> ran_before = RanBefore(batch);
    if (!ran_before.ok()) return Finish(ran_before.status());
    if (*ran_before) return;
    retry_id_ = batch.retry_id();
  }
  if (const absl::Status status = Read(batch); !status.ok()) return Finish(status);
  Advance();
}

absl::StatusOr<bool> BatchRun::RanBefore(v1::Batch& batch) {
  // Only a caller with the session's token can get the session's answers.
  if (absl::Status status = context_.manager->CheckSession(session_); !status.ok()) return status;
  const absl::StatusOr<AnswerMemory::Begun> begun = context_.answers->Begin(
      session_, batch.retry_id(), FingerprintOf(batch), out_,
      [run = shared_from_this()](const absl::Status& status) { run->Finish(status); });
  if (!begun.ok()) return begun.status();
  if (*begun == AnswerMemory::Begun::kAnswered) Finish(absl::OkStatus());
  return *begun != AnswerMemory::Begun::kRun;
}

void BatchRun::Finish(const absl::Status& status) {
  if (retry_id_ != 0) {
    context_.answers->End(session_, std::exchange(retry_id_, 0), status, *out_);
  }
  if (context_.metrics != nullptr) context_.metrics->RecordBatch(absl::Now() - begun_);
  const Done done = std::exchange(done_, nullptr);
  done(status);
}

absl::Status BatchRun::Read(const v1::Batch& batch) {
  const auto count = static_cast<size_t>(batch.operations_size());
  if (count > kMaxBatchOperations) {
    return MakeError(Reason::kBatchTooLarge,
                     absl::StrCat("the batch has ", count, " operations; at most ",
                                  kMaxBatchOperations, " are allowed"));
  }
  steps_ = StepsFromProto(batch);
  out_->mutable_results()->Reserve(batch.operations_size());
  operations_.reserve(count);
  results_.reserve(count);
  for (const v1::Operation& proto : batch.operations()) {
    v1::OperationResult* result = out_->add_results();
    absl::StatusOr<Operation> operation = Decode(proto);
    if (operation.ok()) {
      operations_.push_back(*std::move(operation));
      results_.push_back(result);
    } else {
      *result->mutable_error() = ToProtoStatus(operation.status());
    }
  }
  return absl::OkStatus();
}

void BatchRun::Advance() {
  do {
    const absl::StatusOr<BatchResult> part = context_.manager->ExecuteUntilWait(
        session_, absl::MakeConstSpan(operations_).subspan(next_), steps_, handles_);
    if (!part.ok()) {
      if (waited_ == 0) return Finish(part.status());
      Refuse(part.status());
      break;
    }
    Take(*part);
    if (next_ == operations_.size()) break;
    if (waited_ <= next_) {
      if (PutDown(std::get<WaitForTicket>(operations_[next_]))) return;
      waited_ = next_ + 1;
    } else {
      OperationResultToProto(WaitError(), results_[next_++]);
    }
  } while (next_ < operations_.size());
  Finish(absl::OkStatus());
}

void BatchRun::Take(const BatchResult& part) {
  for (const absl::StatusOr<OperationResult>& result : part.results) {
    OperationResultToProto(result, results_[next_++]);
    if (result.ok()) handles_ += CountHandles(*result);
  }
  BatchStateToProto(part, out_);
}

void BatchRun::Refuse(const absl::Status& error) {
  while (next_ < operations_.size()) OperationResultToProto(error, results_[next_++]);
}

bool BatchRun::PutDown(const WaitForTicket& wait) {
  // If the session has just ended, the next part reports that.
  if (!context_.manager->AttachStream(session_).ok()) return false;
  const size_t operation = next_;
  if (deadline_ == absl::InfiniteFuture()) deadline_ = absl::Now() + kMaxTicketWait;
  // Either the drain finds the batch in the set, or this check finds the drain.
  context_.waiting->Add(shared_from_this());
  if (const absl::Status status = context_.state->CheckAcceptsWork(); !status.ok()) {
    EndWaits(status);
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
  TakeUp();
  return false;
}

void BatchRun::WakeUp() {
  {
    absl::MutexLock lock(&mutex_);
    alarm_.reset();
  }
  TakeUp();
  waited_ = next_ + 1;
  context_.InTurn(0, [run = shared_from_this()] { run->Advance(); });
}

void BatchRun::TakeUp() {
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

absl::Status BatchRun::WaitError() const {
  absl::MutexLock lock(&mutex_);
  if (end_.has_value()) return *end_;
  return MakeError(Reason::kWaitTimeout, absl::StrCat("the copies were not done after ",
                                                      absl::FormatDuration(kMaxTicketWait),
                                                      ", the longest time that a batch waits"));
}

}  // namespace pagoda::server

#include "server/rpc/untaken_answers.h"

#include <algorithm>
#include <vector>

#include "absl/time/clock.h"
#include "manager/fair_count.h"

namespace pagoda::server {
namespace {

// The call that this thread cancels.
thread_local const grpc::ServerContextBase* own_victim = nullptr;

}  // namespace

void UntakenAnswers::Begin(grpc::ServerContextBase* context) {
  absl::MutexLock lock(&mutex_);
  calls_[context] = {.context = context, .number = next_number_++, .party = strangers()};
}

size_t UntakenAnswers::PartyOf(const Identity& caller) const {
  return caller.is_operator() ? num_tenants_ : caller.tenant.value();
}

void UntakenAnswers::SetCaller(const grpc::ServerContextBase* context, const Identity& caller) {
  absl::MutexLock lock(&mutex_);
  if (const auto found = calls_.find(context); found != calls_.end()) {
    found->second.party = PartyOf(caller);
  }
}

void UntakenAnswers::SetAnswered(const grpc::ServerContextBase* context) {
  const absl::Time now = absl::Now();
  absl::MutexLock lock(&mutex_);
  if (const auto found = calls_.find(context); found != calls_.end()) {
    found->second.answered = now;
  }
}

void UntakenAnswers::End(const grpc::ServerContextBase* context) {
  const auto is_not_cancelled = [this, context]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return cancelling_ != context;
  };
  absl::MutexLock lock(&mutex_);
  calls_.erase(context);
  if (own_victim != context) mutex_.Await(absl::Condition(&is_not_cancelled));
}

void UntakenAnswers::CancelSome(absl::Time now) {
  std::vector<Entry> untaken;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [context, call] : calls_) {
      const bool is_answered = call.answered != absl::InfiniteFuture();
      if (is_answered && !call.is_cancelled) untaken.push_back(call);
    }
  }
  // The newest answers get their caller's share.
  std::sort(untaken.begin(), untaken.end(),
            [](const Entry& a, const Entry& b) { return a.number > b.number; });
  FairCount shares(most_, num_tenants_ + 2);
  for (const Entry& call : untaken) {
    if (!shares.Add(call.party) || now - call.answered > kDeadline) Cancel(call);
  }
}

void UntakenAnswers::Cancel(const Entry& call) {
  {
    absl::MutexLock lock(&mutex_);
    const auto found = calls_.find(call.context);
    if (found == calls_.end() || found->second.number != call.number) return;
    found->second.is_cancelled = true;
    cancelling_ = call.context;
  }
  own_victim = call.context;
  call.context->TryCancel();
  own_victim = nullptr;
  absl::MutexLock lock(&mutex_);
  cancelling_ = nullptr;
}

}  // namespace pagoda::server

#include "server/callers/untaken_answers.h"

#include <algorithm>

#include "absl/hash/hash.h"
#include "base/fair_count.h"

namespace pagoda::server {
namespace {

// The call that this thread cancels.
thread_local const grpc::ServerContextBase* own_victim = nullptr;

}  // namespace

UntakenAnswers::Shard& UntakenAnswers::ShardOf(const grpc::ServerContextBase* context) {
  return shards_[absl::HashOf(context) % shards_.size()];
}

void UntakenAnswers::Add(grpc::ServerContextBase* context) {
  Shard& shard = ShardOf(context);
  absl::MutexLock lock(&shard.mutex);
  shard.calls[context] = {.context = context, .party = strangers()};
}

void UntakenAnswers::AddAnswered(grpc::ServerContextBase* context, size_t party) {
  const uint64_t number = NextNumber();
  Shard& shard = ShardOf(context);
  absl::MutexLock lock(&shard.mutex);
  shard.calls[context] = {.context = context, .number = number, .party = party};
}

void UntakenAnswers::SetAnswered(const grpc::ServerContextBase* context) {
  const uint64_t number = NextNumber();
  Shard& shard = ShardOf(context);
  absl::MutexLock lock(&shard.mutex);
  if (const auto found = shard.calls.find(context); found != shard.calls.end()) {
    found->second.number = number;
  }
}

void UntakenAnswers::SetCaller(const grpc::ServerContextBase* context, const Identity& caller) {
  Shard& shard = ShardOf(context);
  absl::MutexLock lock(&shard.mutex);
  if (const auto found = shard.calls.find(context); found != shard.calls.end()) {
    found->second.party = PartyOf(caller);
  }
}

void UntakenAnswers::Remove(const grpc::ServerContextBase* context) {
  Shard& shard = ShardOf(context);
  const auto is_not_cancelled = [&]() ABSL_SHARED_LOCKS_REQUIRED(shard.mutex) {
    return shard.cancelling != context;
  };
  absl::MutexLock lock(&shard.mutex);
  shard.calls.erase(context);
  if (own_victim != context) shard.mutex.Await(absl::Condition(&is_not_cancelled));
}

std::vector<UntakenAnswers::Entry> UntakenAnswers::Untaken(absl::Time now) {
  std::vector<Entry> untaken;
  for (Shard& shard : shards_) {
    absl::MutexLock lock(&shard.mutex);
    for (auto& [context, entry] : shard.calls) {
      if (entry.number == kNotAnswered || entry.is_cancelled) continue;
      entry.seen = std::min(entry.seen, now);
      untaken.push_back(entry);
    }
  }
  std::sort(untaken.begin(), untaken.end(),
            [](const Entry& a, const Entry& b) { return a.number > b.number; });
  return untaken;
}

void UntakenAnswers::CancelSome(absl::Time now) {
  FairCount shares(most_, num_tenants_ + 2);
  // The newest answers get their caller's share.
  for (const Entry& answer : Untaken(now)) {
    if (!shares.Add(answer.party) || now - answer.seen > kDeadline) Cancel(answer);
  }
}

void UntakenAnswers::Cancel(const Entry& answer) {
  Shard& shard = ShardOf(answer.context);
  {
    absl::MutexLock lock(&shard.mutex);
    const auto found = shard.calls.find(answer.context);
    if (found == shard.calls.end() || found->second.number != answer.number) return;
    found->second.is_cancelled = true;
    shard.cancelling = answer.context;
  }
  own_victim = answer.context;
  cancel_(answer.context);
  own_victim = nullptr;
  absl::MutexLock lock(&shard.mutex);
  shard.cancelling = nullptr;
}

}  // namespace pagoda::server

// Answers that their clients do not take.
#ifndef PAGODA_SERVER_CALLERS_UNTAKEN_ANSWERS_H_
#define PAGODA_SERVER_CALLERS_UNTAKEN_ANSWERS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/server_context.h"
#include "server/callers/identity.h"

namespace pagoda::server {

// A client need not read its answers. gRPC then keeps the answered calls, also refused ones, for
// ever. This class knows which calls are answered and not over. CancelSome cancels two kinds:
//
// - An answer that was not taken within kDeadline.
// - The oldest answers of a caller that has more than its share of `most` (FairCount). The sharers
//   are the tenants, the operators, and all callers without credentials together.
//
// Health checks and unknown methods are not known here: see RpcMetrics. An answer costs two locks
// of one of many mutexes, and no reading of a clock. Thread-safe.
class UntakenAnswers {
 public:
  static constexpr absl::Duration kDeadline = absl::Minutes(1);

  // `cancel` replaces TryCancel in tests.
  UntakenAnswers(
      size_t most, size_t num_tenants,
      std::function<void(grpc::ServerContextBase*)> cancel =
          [](grpc::ServerContextBase* context) { context->TryCancel(); })
      : most_(most), num_tenants_(num_tenants), cancel_(std::move(cancel)) {}

  // A call, until the destructor. gRPC's call outlives that. Until SetCaller the call has no
  // credentials. Thread-compatible.
  class Call {
   public:
    Call(UntakenAnswers* answers, grpc::ServerContextBase* context)
        : answers_(answers), context_(context), party_(answers->strangers()) {}
    Call(Call&& other) noexcept
        : answers_(std::exchange(other.answers_, nullptr)),
          context_(other.context_),
          party_(other.party_) {}
    Call& operator=(Call&&) = delete;
    ~Call() {
      if (answers_ != nullptr) answers_->Remove(context_);
    }

    void SetCaller(const Identity& caller) { party_ = answers_->PartyOf(caller); }
    // Call this before gRPC gets the call's status.
    void SetAnswered() { answers_->AddAnswered(context_, party_); }

   private:
    UntakenAnswers* answers_;  // Null: moved from.
    grpc::ServerContextBase* context_;
    size_t party_;
  };

  // Does what Call does, for an interceptor, which does not see the caller: the handler calls
  // SetCaller with the call's context. Costs two locks more. Thread-safe.
  class InterceptedCall {
   public:
    InterceptedCall(UntakenAnswers* answers, grpc::ServerContextBase* context)
        : answers_(answers), context_(context) {
      answers_->Add(context_);
    }
    InterceptedCall(const InterceptedCall&) = delete;
    InterceptedCall& operator=(const InterceptedCall&) = delete;
    ~InterceptedCall() { End(); }

    // See Call::SetAnswered. Has no effect after End.
    void SetAnswered() { answers_->SetAnswered(context_); }
    // A second call has no effect.
    void End() { answers_->Remove(context_); }

   private:
    UntakenAnswers* const answers_;
    grpc::ServerContextBase* const context_;
  };

  // Has no effect on a context without an InterceptedCall.
  void SetCaller(const grpc::ServerContextBase* context, const Identity& caller);

  // Only one thread may call this, at short intervals. An answer's time begins at the next call.
  // `now` is of a clock that does not jump.
  void CancelSome(absl::Time now);

 private:
  static constexpr uint64_t kNotAnswered = UINT64_MAX;

  struct Entry {
    grpc::ServerContextBase* context = nullptr;
    uint64_t number = kNotAnswered;  // In the order of the answers.
    size_t party = 0;
    absl::Time seen = absl::InfiniteFuture();  // By CancelSome, for the first time.
    bool is_cancelled = false;
  };
  // A part of the calls, so that threads seldom wait for each other. No two share a cache line.
  struct alignas(64) Shard {
    absl::Mutex mutex;  // No other lock is taken under it.
    absl::flat_hash_map<const grpc::ServerContextBase*, Entry> calls ABSL_GUARDED_BY(mutex);
    // The call that is being cancelled without the lock, because gRPC can end it or another call on
    // the same thread. Null: none.
    const grpc::ServerContextBase* cancelling ABSL_GUARDED_BY(mutex) = nullptr;
  };
  Shard& ShardOf(const grpc::ServerContextBase* context);
  uint64_t NextNumber() { return answered_.fetch_add(1, std::memory_order_relaxed); }
  void Add(grpc::ServerContextBase* context);
  void AddAnswered(grpc::ServerContextBase* context, size_t party);
  void SetAnswered(const grpc::ServerContextBase* context);
  // Afterwards this class does not use the context.
  void Remove(const grpc::ServerContextBase* context);
  size_t PartyOf(const Identity& caller) const {
    return caller.is_operator() ? num_tenants_ : caller.tenant.value();
  }
  size_t strangers() const { return num_tenants_ + 1; }
  // The answers that are not cancelled, the newest first.
  std::vector<Entry> Untaken(absl::Time now);
  // Cancels the call if it is still open.
  void Cancel(const Entry& answer);

  const size_t most_;
  const size_t num_tenants_;
  const std::function<void(grpc::ServerContextBase*)> cancel_;
  std::atomic<uint64_t> answered_ = 0;
  std::array<Shard, 64> shards_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CALLERS_UNTAKEN_ANSWERS_H_

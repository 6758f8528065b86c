// Answers that their clients do not take.
#ifndef PAGODA_SERVER_RPC_UNTAKEN_ANSWERS_H_
#define PAGODA_SERVER_RPC_UNTAKEN_ANSWERS_H_

#include <cstddef>
#include <cstdint>
#include <utility>

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
// Health checks and unknown methods are not known here: see RpcMetrics.
//
// Thread-safe.
class UntakenAnswers {
 public:
  static constexpr absl::Duration kDeadline = absl::Minutes(1);

  UntakenAnswers(size_t most, size_t num_tenants) : most_(most), num_tenants_(num_tenants) {}

  // A call, until End or the destructor. gRPC's call outlives that. Thread-safe.
  class Call {
   public:
    // Until SetCaller the call has no credentials.
    Call(UntakenAnswers* answers, grpc::ServerContextBase* context)
        : answers_(answers), context_(context) {
      answers_->Begin(context);
    }
    Call(Call&& other) noexcept
        : answers_(std::exchange(other.answers_, nullptr)), context_(other.context_) {}
    Call& operator=(Call&&) = delete;
    ~Call() {
      if (answers_ != nullptr) answers_->End(context_);
    }

    // Call this before gRPC gets the call's status. Has no effect after End.
    void SetAnswered() { answers_->SetAnswered(context_); }
    // A second call has no effect.
    void End() { answers_->End(context_); }

   private:
    UntakenAnswers* answers_;  // Null: moved from.
    grpc::ServerContextBase* context_;
  };

  // Has no effect on a context without a Call.
  void SetCaller(const grpc::ServerContextBase* context, const Identity& caller)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Only one thread may call this.
  void CancelSome(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Entry {
    grpc::ServerContextBase* context = nullptr;
    uint64_t number = 0;  // In the order of Begin. Tells calls with the same context apart.
    size_t party = 0;
    absl::Time answered = absl::InfiniteFuture();
    bool is_cancelled = false;
  };

  void Begin(grpc::ServerContextBase* context) ABSL_LOCKS_EXCLUDED(mutex_);
  void SetAnswered(const grpc::ServerContextBase* context) ABSL_LOCKS_EXCLUDED(mutex_);
  // Afterwards this class does not use the context.
  void End(const grpc::ServerContextBase* context) ABSL_LOCKS_EXCLUDED(mutex_);

  size_t PartyOf(const Identity& caller) const;
  size_t strangers() const { return num_tenants_ + 1; }
  // Cancels the call if it is still open.
  void Cancel(const Entry& call) ABSL_LOCKS_EXCLUDED(mutex_);

  const size_t most_;
  const size_t num_tenants_;
  absl::Mutex mutex_;  // No other lock is taken under it.
  uint64_t next_number_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<const grpc::ServerContextBase*, Entry> calls_ ABSL_GUARDED_BY(mutex_);
  // The call that is being cancelled without the lock, because gRPC can end it or another call on
  // the same thread. Null: none.
  const grpc::ServerContextBase* cancelling_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_RPC_UNTAKEN_ANSWERS_H_

// Limits how many streams each tenant has open.
#ifndef PAGODA_SERVER_CALLERS_STREAM_SLOTS_H_
#define PAGODA_SERVER_CALLERS_STREAM_SLOTS_H_

#include <cstddef>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/counted.h"
#include "base/error.h"
#include "base/fair_count.h"
#include "manager/words/ids.h"

namespace pagoda::server {

// Streams stay open. Without a limit, a tenant that opens ever more would keep the other tenants
// out: see FairCount. Thread-safe; must outlive the slots.
class StreamSlots {
 public:
  // The right to one stream, until the slot is destroyed.
  class Slot {
   public:
    Slot(StreamSlots* slots, TenantId tenant) : slots_(slots), tenant_(tenant) {}
    Slot(Slot&& other) noexcept
        : slots_(std::exchange(other.slots_, nullptr)), tenant_(other.tenant_) {}
    Slot& operator=(Slot&&) = delete;
    ~Slot() {
      if (slots_ != nullptr) slots_->GiveBack(tenant_);
    }

   private:
    StreamSlots* slots_;  // Null: moved from.
    TenantId tenant_;
  };

  StreamSlots(size_t most, size_t num_tenants) : count_(most, num_tenants) {}

  // Errors: TOO_MANY_CALLS.
  absl::StatusOr<Slot> Take(TenantId tenant) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (count_.Add(tenant.value())) return Slot(this, tenant);
    return MakeError(Reason::kTooManyCalls,
                     absl::StrCat("open: ", Counted(count_.of(tenant.value()), "stream"),
                                  " of this tenant, which is its limit now"));
  }

 private:
  void GiveBack(TenantId tenant) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    count_.Remove(tenant.value());
  }

  absl::Mutex mutex_;  // No other lock is taken under it.
  FairCount count_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CALLERS_STREAM_SLOTS_H_

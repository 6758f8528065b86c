// The memory of HTTP bodies and of the values that are parsed from them.
#ifndef PAGODA_SERVER_HTTP_BODY_MEMORY_H_
#define PAGODA_SERVER_HTTP_BODY_MEMORY_H_

#include <cstddef>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/fair_count.h"
#include "manager/words/ids.h"

namespace pagoda::server {

// Bounds the bytes of all requests together, and shares them out among the tenants (FairCount).
// Trim gives memory back to the system. Thread-safe; must outlive the shares.
class BodyMemory {
 public:
  static constexpr absl::Duration kTrimInterval = absl::Seconds(1);

  // `most_of_one`: the most that one request can take.
  BodyMemory(size_t most, size_t most_of_one, size_t num_tenants)
      : most_of_one_(most_of_one), count_(most, num_tenants) {}

  // The bytes of one request, until the share is destroyed. Thread-compatible.
  class Share {
   public:
    Share(BodyMemory* memory, TenantId tenant) : memory_(memory), tenant_(tenant) {}
    Share(Share&& other) noexcept
        : memory_(other.memory_), tenant_(other.tenant_), bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&&) = delete;
    ~Share() { memory_->GiveBack(tenant_, bytes_); }

    // Errors: MESSAGE_TOO_LARGE if the request takes more than a request may, TOO_MANY_CALLS if its
    // tenant has no more bytes now.
    absl::Status Add(size_t bytes);

   private:
    BodyMemory* memory_;
    TenantId tenant_;
    size_t bytes_ = 0;
  };

  // Call this regularly. After a large request it gives free memory back to the system, but not
  // while another one could use it, and at most once each kTrimInterval: every thread that
  // allocates meanwhile can wait, for as long as it takes. Returns whether it did so.
  bool Trim(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Status Take(TenantId tenant, size_t bytes, size_t before) ABSL_LOCKS_EXCLUDED(mutex_);
  void GiveBack(TenantId tenant, size_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);

  const size_t most_of_one_;
  absl::Mutex mutex_;  // No other lock is taken under it.
  FairCount count_ ABSL_GUARDED_BY(mutex_);
  // Requests with kLargeBytes or more.
  size_t large_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_trim_due_ ABSL_GUARDED_BY(mutex_) = false;  // A large request has ended since the last.
  absl::Time next_trim_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_BODY_MEMORY_H_

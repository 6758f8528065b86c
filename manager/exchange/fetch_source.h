// A store that blocks are fetched from, and how fast it is.
#ifndef PAGODA_MANAGER_EXCHANGE_FETCH_SOURCE_H_
#define PAGODA_MANAGER_EXCHANGE_FETCH_SOURCE_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "manager/exchange/stored_prefix.h"
#include "pools/store/store.h"

namespace pagoda {

// The exchange's own store, or another daemon. Several exchanges can share a source: they then
// share what is known of its speed. Thread-safe.
class FetchSource {
 public:
  // `is_trusted`: the operator has named the store, or it accepts only values that someone with its
  // secret has made.
  explicit FetchSource(std::shared_ptr<Store> store, bool is_trusted = false)
      : store_(std::move(store)), is_trusted_(is_trusted) {}

  Store& store() const { return *store_; }
  bool is_trusted() const { return is_trusted_; }

  // A fetch brought `bytes` in that time. 0 bytes: it brought nothing by its deadline.
  void Note(uint64_t bytes, absl::Duration took) ABSL_LOCKS_EXCLUDED(mutex_);
  // The measured rate: an exponential moving average, in which the latest fetch has weight 0.2. 0:
  // no fetch has ended.
  double bytes_per_second() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether a fetch of `bytes` is predicted to take longer than `otherwise`. `assumed`: bytes per
  // second, as long as nothing is measured. Without a fetch now and then, a source that was slow
  // once would count as slow for ever. So once in `probe_interval` the answer is false.
  bool IsSlower(uint64_t bytes, absl::Duration otherwise, double assumed,
                absl::Duration probe_interval, absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const std::shared_ptr<Store> store_;  // Shared with the daemon's other users of the store.
  const bool is_trusted_;
  mutable absl::Mutex mutex_;  // A leaf.
  double rate_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time slow_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // Or since the probe.
};

// Whether all who can read the prompt's blocks may get what the source answers. Anybody can have
// made the values of a source that is not trusted, and the prompt's tenant has named it. So only
// this tenant itself may read them. Errors: PERMISSION_DENIED.
absl::Status CheckReaders(const FetchSource& source, const StoredPrompt& prompt);

}  // namespace pagoda

#endif  // PAGODA_MANAGER_EXCHANGE_FETCH_SOURCE_H_

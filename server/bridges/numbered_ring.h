// The newest items of a numbered stream, for subscribers that missed some.
#ifndef PAGODA_SERVER_BRIDGES_NUMBERED_RING_H_
#define PAGODA_SERVER_BRIDGES_NUMBERED_RING_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/check.h"

namespace pagoda::server {

// The limits of a ring. It always keeps the last item.
struct RingLimits {
  size_t max_items = 10'000;
  size_t max_bytes = size_t{64} << 20;
};

// Thread-safe.
template <class Item>
class NumberedRing {
 public:
  // Shared by the ring and by the streams that are sending the item.
  using ItemPtr = std::shared_ptr<const Item>;
  struct Entry {
    uint64_t number = 0;
    ItemPtr item;  // Null: no such item.
  };

  // `first_number`: the number of the first item.
  NumberedRing(RingLimits limits, uint64_t first_number)
      : limits_(limits), first_number_(first_number), next_(first_number) {}

  // REQUIRES: the number is next(). `bytes`: the item's size for the limit.
  void Push(uint64_t number, ItemPtr item, size_t bytes) ABSL_LOCKS_EXCLUDED(mutex_) {
    std::vector<Sized> dropped;  // Destroyed after the lock is released.
    absl::MutexLock lock(&mutex_);
    PAGODA_CHECK(number == next_, "numbers have no holes");
    ++next_;
    bytes_ += bytes;
    items_.push_back({std::move(item), bytes});
    while (items_.size() > 1 && (items_.size() > limits_.max_items || bytes_ > limits_.max_bytes)) {
      bytes_ -= items_.front().bytes;
      dropped.push_back(std::move(items_.front()));
      items_.pop_front();
    }
  }

  // The number of the first item ever.
  uint64_t first_number() const { return first_number_; }
  // The number that the next item will have.
  uint64_t next() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return next_;
  }
  // The oldest number kept; next() if the ring is empty.
  uint64_t oldest() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return Oldest();
  }

  // The first kept item with `number` or a larger one.
  Entry From(uint64_t number) const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (number >= next_ || items_.empty()) return {};
    number = std::max(number, Oldest());
    return {number, items_[number - Oldest()].item};
  }

  // The item with that number; null for next(). Errors: OUT_OF_RANGE if the item is no longer kept,
  // DATA_LOSS if the number is below the first one or above next().
  absl::StatusOr<ItemPtr> At(uint64_t number) const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (number < first_number_ || number > next_) {
      return absl::DataLossError(
          absl::StrCat("batch ", number, " does not belong to this run of the daemon, which has ",
                       first_number_, " to ", next_));
    }
    if (number == next_) return ItemPtr();
    if (number < Oldest()) {
      return absl::OutOfRangeError(
          absl::StrCat("batch ", number, " is no longer kept; the oldest one is ", Oldest()));
    }
    return items_[number - Oldest()].item;
  }

 private:
  struct Sized {
    ItemPtr item;
    size_t bytes;
  };

  uint64_t Oldest() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return next_ - items_.size(); }

  const RingLimits limits_;
  const uint64_t first_number_;
  mutable absl::Mutex mutex_;  // A leaf lock: no other lock is taken under it.
  std::deque<Sized> items_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BRIDGES_NUMBERED_RING_H_

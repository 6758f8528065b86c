// A disk in memory, for a cache with a tier on disk. It does work only when a test calls it.
#ifndef PAGODA_TESTS_ENGINE_SCHEDULE_FAKE_DISK_H_
#define PAGODA_TESTS_ENGINE_SCHEDULE_FAKE_DISK_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "pools/carrier.h"
#include "tests/engine/fixtures/test_cache.h"

namespace pagoda {

// All calls are on one thread; the cache can make its own on other threads.
class FakeDisk final : public Carrier {
 public:
  // The cache's disk until this is destroyed.
  explicit FakeDisk(TestCache* cache);
  ~FakeDisk() override;

  void Submit(absl::Span<const Order> orders) override;

  // Carries out the orders, except held fetches, and the orders that follow from them.
  void Run();
  void HoldFetches(bool hold) { holds_fetches_ = hold; }
  // Called for each fetch. If it returns an error, nothing is read and the fetch ends with the
  // error.
  void SetFetchOutcome(std::function<absl::Status()> outcome) { outcome_ = std::move(outcome); }

  size_t held_fetches() const { return fetches_.size(); }
  uint64_t blocks_read() const { return blocks_read_; }

 private:
  using Place = std::pair<uint32_t, SlotIndex>;  // A window's index, and a slot of its file.

  bool RunOrders();
  void Write(const Order& backup);
  void Read(const Order& fetch);
  void AwaitCopies(Ticket after);
  // The bytes of the slot in each pool of the window.
  std::vector<absl::Span<std::byte>> Bytes(uint32_t window_index, SlotRef slot);

  TestCache& cache_;
  absl::Mutex mutex_;
  std::vector<Order> orders_ ABSL_GUARDED_BY(mutex_);
  std::deque<Order> fetches_;  // Held.
  std::map<Place, std::vector<std::vector<std::byte>>> blocks_;
  bool holds_fetches_ = false;
  std::function<absl::Status()> outcome_ = [] { return absl::OkStatus(); };
  uint64_t blocks_read_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_ENGINE_SCHEDULE_FAKE_DISK_H_

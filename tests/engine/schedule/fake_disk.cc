#include "tests/engine/schedule/fake_disk.h"

#include <algorithm>

#include "absl/types/span.h"
#include "base/check.h"

namespace pagoda {

FakeDisk::FakeDisk(TestCache* cache) : cache_(*cache) {
  cache_.manager().SetCarrier({Lane::kFetch, Lane::kBackup}, this);
}

FakeDisk::~FakeDisk() {
  HoldFetches(false);
  Run();
  cache_.manager().SetCarrier({Lane::kFetch, Lane::kBackup}, nullptr);
}

void FakeDisk::Submit(absl::Span<const Order> orders) {
  absl::MutexLock lock(&mutex_);
  orders_.insert(orders_.end(), orders.begin(), orders.end());
}

void FakeDisk::Run() {
  do {
    cache_.manager().Maintain(0);  // Orders backups.
    cache_.WaitForCopies();
  } while (RunOrders());
}

// Returns whether there was anything to do.
bool FakeDisk::RunOrders() {
  std::vector<Order> orders;
  {
    absl::MutexLock lock(&mutex_);
    orders = std::exchange(orders_, {});
  }
  SharedManager& manager = cache_.manager();
  for (const Order& order : orders) {
    if (order.lane == Lane::kFetch) {
      fetches_.push_back(order);
      continue;
    }
    if (order.kind == Order::Kind::kMove) Write(order);
    manager.Complete(order.lane, order.ticket, absl::OkStatus());
  }
  if (holds_fetches_ || fetches_.empty()) return !orders.empty();
  for (const Order& fetch : std::exchange(fetches_, {})) {
    const absl::Status status = outcome_();
    if (status.ok()) Read(fetch);
    manager.Complete(Lane::kFetch, fetch.ticket, status);
  }
  return true;
}

void FakeDisk::Write(const Order& backup) {
  AwaitCopies(backup.after[0]);
  std::vector<std::vector<std::byte>>& block = blocks_[{backup.window_index, backup.target.slot}];
  block.clear();
  for (const absl::Span<std::byte> bytes : Bytes(backup.window_index, backup.source)) {
    block.emplace_back(bytes.begin(), bytes.end());
  }
}

void FakeDisk::Read(const Order& fetch) {
  AwaitCopies(fetch.after[0]);
  const auto& block = blocks_.at({fetch.window_index, fetch.source.slot});
  size_t pool = 0;
  for (const absl::Span<std::byte> bytes : Bytes(fetch.window_index, fetch.target)) {
    std::copy(block[pool].begin(), block[pool].end(), bytes.begin());
    ++pool;
  }
  ++blocks_read_;
}

void FakeDisk::AwaitCopies(Ticket after) {
  cache_.WaitForCopies();
  PAGODA_CHECK(cache_.manager().Read(
                   [](const BlockManager& core) { return core.completed_ticket(); }) >= after,
               "a copy was ordered before the file");
}

std::vector<absl::Span<std::byte>> FakeDisk::Bytes(uint32_t window_index, SlotRef slot) {
  std::vector<absl::Span<std::byte>> bytes;
  const WindowLayout& window = cache_.pools().layout().windows()[window_index];
  for (uint32_t p = 0; p < window.pools.size(); ++p) {
    SharedMemoryPool& pool = cache_.pools().pool(window_index, p, slot.tier);
    const uint64_t stride = pool.layout().slot_stride_bytes();
    bytes.push_back({pool.bytes().data() + slot.slot.value() * stride, stride});
  }
  return bytes;
}

}  // namespace pagoda

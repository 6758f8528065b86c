// A manager whose copies finish when a test calls Finish.
#ifndef PAGODA_TESTS_SERVER_HELD_COPIES_H_
#define PAGODA_TESTS_SERVER_HELD_COPIES_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "events/event_log.h"
#include "gtest/gtest.h"
#include "manager/shared_manager.h"
#include "pools/carrier.h"
#include "tests/manager/fixtures/host_tiers.h"

namespace pagoda::server {

// Keeps copy orders until they are taken.
class OrderKeeper final : public Carrier {
 public:
  void Submit(absl::Span<const Order> orders) override {
    absl::MutexLock lock(&mutex_);
    orders_.insert(orders_.end(), orders.begin(), orders.end());
  }

  std::vector<Order> Take() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(orders_, {});
  }

 private:
  absl::Mutex mutex_;
  std::vector<Order> orders_ ABSL_GUARDED_BY(mutex_);
};

// Two tiers of 8 blocks of 4 tokens, without memory. A test can put the clock forward. Thread-safe.
class HeldCopies {
 public:
  HeldCopies() {
    absl::StatusOr<CacheLayout> layout = CacheLayout::Create(
        {.tokens_per_block = 4, .layers = {{.num_kv_heads = 1, .head_dim = 1}}});
    auto core = BlockManager::Create({.layout = *std::move(layout),
                                      .tiers = HostTiers({8}, {8}),
                                      .pool_mappings = {},
                                      .epoch = Epoch(1)});
    EXPECT_TRUE(core.ok()) << core.status();
    manager_ = std::make_unique<SharedManager>(*std::move(core), &log_, [this] {
      return SharedManager::Now() + absl::Milliseconds(put_forward_ms_.load());
    });
    manager_->SetCarrier({Lane::kMemory}, &orders_);
  }
  ~HeldCopies() {
    Finish();
    manager_->Read(&BlockManager::CheckInvariants);
  }

  SharedManager& manager() { return *manager_; }
  const EventLog& log() const { return log_; }

  // In whole milliseconds.
  void PutClockForward(absl::Duration by) { put_forward_ms_ += absl::ToInt64Milliseconds(by); }

  SessionRef Open(absl::Duration lease = absl::InfiniteDuration()) {
    const auto session = manager_->OpenSession("test", lease);
    EXPECT_TRUE(session.ok()) << session.status();
    return session->ref;
  }

  template <class Result>
  Result Run(SessionRef session, Operation operation) {
    const auto batch = manager_->ExecuteUntilWait(session, {&operation, 1}, {});
    EXPECT_TRUE(batch.ok()) << batch.status();
    EXPECT_TRUE(batch->results.at(0).ok()) << batch->results.at(0).status();
    return std::get<Result>(*batch->results.at(0));
  }

  // Caches `tokens` and begins to offload their blocks. Returns the ticket of the last copy.
  Ticket Offload(SessionRef session, const std::vector<TokenId>& tokens) {
    Run<AddedSequence>(session, AddSequence{.sequence = SequenceId(99), .tokens = tokens});
    Run<CommittedTokens>(session,
                         CommitTokens{.sequence = SequenceId(99),
                                      .computed_tokens = static_cast<uint32_t>(tokens.size())});
    Run<FreedSequence>(session, FreeSequence{SequenceId(99)});
    const auto offloaded = Run<OffloadedPrefix>(session, OffloadPrefix{{}, tokens});
    EXPECT_GT(offloaded.blocks, 0u);
    EXPECT_GT(offloaded.ready,
              manager_->Read([](const BlockManager& core) { return core.completed_ticket(); }));
    return offloaded.ready;
  }

  // Completes the copies ordered so far.
  void Finish(const absl::Status& status = absl::OkStatus()) {
    for (const Order& order : orders_.Take()) manager_->Complete(order.lane, order.ticket, status);
  }

 private:
  std::atomic<int64_t> put_forward_ms_ = 0;
  EventLog log_{EventLog::Limits{.max_events = 1 << 10}};
  OrderKeeper orders_;
  std::unique_ptr<SharedManager> manager_;
};

}  // namespace pagoda::server

#endif  // PAGODA_TESTS_SERVER_HELD_COPIES_H_

// A cache of the size of the table in server/LIMITS.md, and the cost of one operation on it.
#ifndef PAGODA_TESTS_MANAGER_MEASURED_CACHE_H_
#define PAGODA_TESTS_MANAGER_MEASURED_CACHE_H_

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "events/event_log.h"
#include "manager/shared_manager.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {

// For this thread: the bytes in use on the heap, and their maximum since it was set.
// operation_bounds_test.cc counts them.
extern thread_local int64_t g_live_bytes;
extern thread_local int64_t g_most_bytes;

// server.max_message_bytes by default. A token below 128 is a byte of a message.
inline constexpr uint32_t kMessageBytes = 16 << 20;
inline constexpr uint32_t kBlocks = 65'536;
inline constexpr uint32_t kTokensPerBlock = 16;
inline constexpr uint32_t kCacheTokens = kBlocks * kTokensPerBlock;
// The most ranges that an operation can have.
inline constexpr uint32_t kMaxRanges = 65'536;

// The processor time of this thread, without other work on the machine.
inline double ThreadMicroseconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

struct Cost {
  double microseconds = 0;
  int64_t kept_bytes = 0;
  int64_t most_bytes = 0;
};

inline BlockManager::Options TwoTiers() {
  return {.layout = TinyLayout(kTokensPerBlock),
          .tiers = HostTiers({kBlocks}, {kBlocks}),
          .pin_budget_permille = 1000,
          .epoch = Epoch{1}};
}

// An empty cache, and a client.
class Cache {
 public:
  explicit Cache(BlockManager::Options options)
      : log_(EventLog::Limits{.max_events = 1, .max_bytes = 1}),
        manager_(*BlockManager::Create(std::move(options)), &log_, [this] { return Now(); }) {
    OpenSession(kDefaultTenant);
  }

  // The following operations are the tenant's.
  void OpenSession(TenantId tenant) {
    session_ = manager_.OpenSession("client", absl::InfiniteDuration(), tenant)->ref;
  }
  // The following operations belong to this step.
  void EnterStep(StepRange steps) { steps_ = steps; }
  void Advance(absl::Duration time) { now_ += time; }

  // Runs an operation that must succeed, without measuring its cost.
  OperationResult Run(const Operation& operation) {
    absl::StatusOr<BatchResult> batch = manager_.Execute(session_, {&operation, 1}, steps_);
    EXPECT_TRUE(batch.ok() && batch->results[0].ok())
        << batch.status() << (batch.ok() ? batch->results[0].status() : absl::OkStatus());
    return *std::move(batch->results[0]);
  }
  template <class Result>
  Result Run(const Operation& operation) {
    return std::get<Result>(Run(operation));
  }

  // A refusal has a cost, too. An operation that is meant to succeed must not be refused.
  enum class Answer : uint8_t { kSuccess, kRefusal };
  Cost Measure(const Operation& operation, Answer expected) {
    Cost cost;
    g_most_bytes = g_live_bytes;
    const int64_t before = g_live_bytes;
    locked_at_.reset();
    armed_ = true;
    {
      const absl::StatusOr<BatchResult> batch =
          manager_.ExecuteUntilWait(session_, {&operation, 1}, steps_);
      // The lock was released a moment ago.
      cost.microseconds = ThreadMicroseconds() - locked_at_.value_or(0);
      EXPECT_TRUE(batch.ok() && locked_at_.has_value()) << batch.status();
      if (batch.ok()) {
        const absl::Status answer = batch->results[0].status();
        EXPECT_EQ(answer.ok(), expected == Answer::kSuccess) << answer;
      }
    }
    armed_ = false;
    cost.kept_bytes = std::max<int64_t>(0, g_live_bytes - before);
    cost.most_bytes = g_most_bytes - before;
    return cost;
  }

  SharedManager& manager() { return manager_; }
  SessionRef session() const { return session_; }

 private:
  // The first thing that the manager does with the lock is to ask for the time.
  absl::Time Now() {
    if (armed_ && !locked_at_.has_value()) locked_at_ = ThreadMicroseconds();
    return now_;
  }

  absl::Time now_ = absl::UnixEpoch();
  StepRange steps_;
  bool armed_ = false;
  std::optional<double> locked_at_;
  EventLog log_;
  SharedManager manager_;
  SessionRef session_;
};

inline constexpr SequenceId kFirst{1}, kSecond{2};

inline std::vector<TokenId> Tokens(uint32_t count) {
  std::vector<TokenId> tokens(count);
  for (uint32_t i = 0; i < count; ++i) tokens[i] = i % 127 + (i / 127) % 2;
  return tokens;
}

}  // namespace pagoda

#endif  // PAGODA_TESTS_MANAGER_MEASURED_CACHE_H_

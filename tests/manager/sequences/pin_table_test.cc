#include "manager/sequences/pin_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "absl/time/clock.h"
#include "base/error.h"
#include "manager/block_manager.h"
#include "manager/sequences/cached_prefixes.h"
#include "manager/sequences/running_sequences.h"
#include "manager/services/operation_scope.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/prompt_of.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

constexpr TenantId kRed{1}, kBlue{2};

PinEntry Entry(TenantId tenant, uint32_t blocks, absl::Time expires = absl::InfiniteFuture()) {
  return {.info = {.blocks = blocks, .expires = expires}, .tenant = tenant, .blocks = {}};
}

TEST(PinTableTest, ATenantHasItsShareOfAllThatPinsName) {
  // The default tenant has 1 of 4 shares.
  const TenantTable tenants = *TenantTable::Create({{.name = "red", .share = 2}, {.name = "b"}}, 1);
  PinTable pins(&tenants, 100);
  const uint64_t most = pins.max_references();
  EXPECT_TRUE(pins.CheckCapacity(kRed, most / 2).ok());
  EXPECT_EQ(ReasonOf(pins.CheckCapacity(kRed, most / 2 + 1)), Reason::kPinBudgetExceeded);
  pins.Add(Entry(kRed, static_cast<uint32_t>(most / 2)));
  EXPECT_FALSE(pins.CheckCapacity(kRed, 1).ok());
  EXPECT_TRUE(pins.CheckCapacity(kBlue, most / 4).ok());
  EXPECT_FALSE(pins.CheckCapacity(kBlue, most / 4 + 1).ok());
  EXPECT_TRUE(pins.CheckCapacity(kDefaultTenant, most / 2).ok()) << "whatever is left";
  EXPECT_FALSE(pins.CheckCapacity(kDefaultTenant, most / 2 + 1).ok());
  pins.Take(PinId{1});
  EXPECT_TRUE(pins.CheckCapacity(kRed, most / 2).ok());
}

TEST(PinTableTest, ExpiresWhatANaiveTableExpires) {
  const TenantTable tenants = *TenantTable::Create({}, 1);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    PinTable pins(&tenants, 100);
    std::map<PinId, absl::Time> naive;
    absl::Time now = absl::UnixEpoch();
    for (int step = 0; step < 500; ++step) {
      if (random() % 3 != 0) {
        const absl::Time expires =
            random() % 4 == 0 ? absl::InfiniteFuture() : now + absl::Seconds(1 + random() % 50);
        naive[pins.Add(Entry(kDefaultTenant, 1, expires))] = expires;
      } else if (!naive.empty() && random() % 2 == 0) {
        const auto one = std::next(naive.begin(), static_cast<long>(random() % naive.size()));
        pins.Take(one->first);
        naive.erase(one);
      }
      now += absl::Seconds(random() % 5);
      while (const std::optional<PinId> expired = pins.FirstExpired(now)) {
        ASSERT_LE(naive.at(*expired), now) << "seed " << seed;
        pins.Take(*expired);
        naive.erase(*expired);
      }
      absl::Time next = absl::InfiniteFuture();
      for (const auto& [pin, expires] : naive) next = std::min(next, expires);
      ASSERT_EQ(pins.next_deadline(), next) << "seed " << seed;
      ASSERT_GT(next, now) << "seed " << seed;
      ASSERT_EQ(pins.size(), naive.size()) << "seed " << seed;
    }
  }
}

// The time of an expiry: one of `pins` pins expires each second, for kExpiries seconds.
constexpr int kExpiries = 500;

absl::Duration TimeExpiries(size_t pins) {
  const auto core = MakeCore(16, 4);
  absl::Time now = absl::UnixEpoch();
  const SessionId session = core->OpenSession("test", absl::InfiniteDuration(), now)->ref.id;
  const std::vector<TokenId> prompt(8, 7);
  EXPECT_TRUE(
      core->sequences().AddSequence(session, SequenceId{1}, PromptOf({}, prompt), now).ok());
  EXPECT_TRUE(core->sequences().CommitTokens(session, SequenceId{1}, {}, 8, now).ok());
  EXPECT_TRUE(core->sequences().FreeSequence(session, SequenceId{1}, now).ok());
  for (size_t i = 0; i < pins; ++i) {
    const absl::Duration lease = i < kExpiries ? absl::Seconds(i + 1) : absl::Hours(100);
    EXPECT_TRUE(core->prefixes().Pin(session, PromptOf({}, prompt), lease, now).ok());
  }
  core->TakeEvents();
  const absl::Time begin = absl::Now();
  for (int i = 0; i < kExpiries; ++i) {
    now += absl::Seconds(1);
    core->Maintain(now, 0);
  }
  const absl::Duration elapsed = absl::Now() - begin;
  EXPECT_EQ(core->TakeEvents().size(), static_cast<size_t>(kExpiries)) << "one a call";
  EXPECT_EQ(core->Stats().pins, pins - kExpiries);
  return elapsed / kExpiries;
}

// With the most pins possible, a look at all of them would take a hundred times as long.
TEST(PinExpiryTest, CostsWhatExpiresAndNotWhatThereIs) {
  absl::Duration few = absl::InfiniteDuration(), most = absl::InfiniteDuration();
  for (int i = 0; i < 5; ++i) {
    few = std::min(few, TimeExpiries(kExpiries));
    most = std::min(most, TimeExpiries(PinTable::kMaxPins));
  }
  EXPECT_LT(most, 10 * few) << absl::FormatDuration(few) << " beside " << kExpiries << " pins, "
                            << absl::FormatDuration(most) << " beside " << PinTable::kMaxPins;
}

void CachePrompt(BlockManager& core, SessionId session, const std::vector<TokenId>& prompt) {
  const absl::Time now = absl::UnixEpoch();
  const auto computed = static_cast<uint32_t>(prompt.size());
  EXPECT_TRUE(core.sequences().AddSequence(session, SequenceId{1}, PromptOf({}, prompt), now).ok());
  EXPECT_TRUE(core.sequences().CommitTokens(session, SequenceId{1}, {}, computed, now).ok());
  EXPECT_TRUE(core.sequences().FreeSequence(session, SequenceId{1}, now).ok());
  core.TakeEvents();
}

// All leases are over at once: no single call ends all of the pins.
TEST(PinExpiryTest, OneCallEndsNoMoreThanABound) {
  const auto core = MakeCore(16, 4);
  const SessionId session =
      core->OpenSession("test", absl::InfiniteDuration(), absl::UnixEpoch())->ref.id;
  const std::vector<TokenId> prompt(16, 7);  // 4 blocks.
  CachePrompt(*core, session, prompt);
  constexpr uint32_t kPins = 1000, kPinsEnded = kMaxEndsByTime / 4;
  for (uint32_t i = 0; i < kPins; ++i) {
    ASSERT_TRUE(core->prefixes()
                    .Pin(session, PromptOf({}, prompt), absl::Seconds(1), absl::UnixEpoch())
                    .ok());
  }
  const absl::Time now = absl::UnixEpoch() + absl::Seconds(1);
  EXPECT_TRUE(core->HasExpired(now));
  uint64_t next = 1;
  for (uint32_t left = kPins; left > 0;) {
    EXPECT_TRUE(core->HasExpired(now));
    // Any call ends expired pins, even a refused one.
    EXPECT_FALSE(core->prefixes().Unpin(PinId{1'000'000}, now).ok());
    const EventBatch events = core->TakeEvents();
    ASSERT_EQ(events.size(), std::min(left, kPinsEnded));
    for (const Event& event : events) {
      EXPECT_EQ(std::get<UpdatedEvent>(event.what).ended_pin->pin, PinId{next++});
    }
    left -= static_cast<uint32_t>(events.size());
    EXPECT_EQ(core->Stats().pins, left);
    core->CheckInvariants();
  }
  EXPECT_FALSE(core->HasExpired(now));
}

TEST(PinExpiryTest, OneCallEndsAPinThatIsLargerThanTheBound) {
  constexpr uint32_t kBlocks = 4 * kMaxEndsByTime;
  const auto core = *BlockManager::Create({.layout = TinyLayout(4),
                                           .tiers = HostTiers({kBlocks}),
                                           .pin_budget_permille = 1000,
                                           .epoch = Epoch{1}});
  const SessionId session =
      core->OpenSession("test", absl::InfiniteDuration(), absl::UnixEpoch())->ref.id;
  const std::vector<TokenId> prompt(kBlocks * 4, 7);
  CachePrompt(*core, session, prompt);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(core->prefixes()
                    .Pin(session, PromptOf({}, prompt), absl::Seconds(1), absl::UnixEpoch())
                    .ok());
  }
  const absl::Time now = absl::UnixEpoch() + absl::Seconds(1);
  core->Maintain(now, 0);
  EXPECT_EQ(core->Stats().pins, 1u);
  core->Maintain(now, 0);
  EXPECT_EQ(core->Stats().pins, 0u);
}

TEST(PriorityExpiryTest, OneCallEndsNoMoreThanABound) {
  constexpr uint32_t kBlocks = 2 * kMaxEndsByTime + 100;
  const auto core = MakeCore(kBlocks, 4);
  const SessionId session =
      core->OpenSession("test", absl::InfiniteDuration(), absl::UnixEpoch())->ref.id;
  const std::vector<TokenId> prompt(kBlocks * 4, 7);
  CachePrompt(*core, session, prompt);
  const SequenceRetention wish{
      .ranges = {{.retention = {.priority = Priority{80}, .duration = absl::Seconds(1)}}},
      .generated = std::nullopt};
  ASSERT_EQ(*core->prefixes().SetRetention(PromptOf({}, prompt), wish, absl::UnixEpoch()), kBlocks);
  core->TakeEvents();
  const absl::Time now = absl::UnixEpoch() + absl::Seconds(1);
  for (const uint32_t ended : {kMaxEndsByTime, kMaxEndsByTime, 100u, 0u}) {
    EXPECT_EQ(core->HasExpired(now), ended != 0);
    core->Maintain(now, 0);
    EXPECT_EQ(core->TakeEvents().size(), ended);
    core->CheckInvariants();
  }
  EXPECT_EQ(core->Stats().windows[0].counters.expired_priorities, kBlocks);
}

}  // namespace
}  // namespace pagoda

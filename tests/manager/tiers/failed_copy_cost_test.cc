// The cost of a failed copy depends on what it touches, not on the number of running sequences.
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <vector>

#include "manager/block_manager.h"
#include "manager/sequences/cached_prefixes.h"
#include "manager/sequences/running_sequences.h"
#include "manager/tree/sequence.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/prompt_of.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

// The processor time of a failed copy that two sequences read, beside `others` that do not read it:
// the shortest of a few.
double FailureSeconds(uint64_t others) {
  const absl::Time now = absl::UnixEpoch();
  const auto core = MakeCore(static_cast<uint32_t>(others) + 64, 4);
  const SessionId session = core->OpenSession("test", absl::InfiniteDuration(), now)->ref.id;
  for (uint64_t i = 0; i < others; ++i) {
    const std::vector<TokenId> tokens = {TokenId{1000} + static_cast<TokenId>(i)};
    EXPECT_TRUE(core->sequences()
                    .AddSequence(session, SequenceId{100 + i}, PromptOf({}, tokens), now)
                    .ok());
  }
  double shortest = 1e9;
  for (uint64_t round = 0; round < 9; ++round) {
    const auto first = static_cast<TokenId>(10 * round);
    const std::vector<TokenId> tokens = {first, first + 1, first + 2, first + 3, 1, 2};
    EXPECT_TRUE(
        core->sequences().AddSequence(session, SequenceId{1}, PromptOf({}, tokens), now).ok());
    EXPECT_TRUE(core->sequences().CommitTokens(session, SequenceId{1}, {}, 4, now).ok());
    EXPECT_TRUE(core->sequences().FreeSequence(session, SequenceId{1}, now).ok());
    // It shares three tokens of the cached block, which are copied; a fork shares the copy.
    const std::vector<TokenId> other = {first, first + 1, first + 2, 7, 7};
    EXPECT_EQ(core->sequences()
                  .AddSequence(session, SequenceId{2}, PromptOf({}, other), now)
                  ->matched_tokens,
              3u);
    EXPECT_TRUE(core->sequences().ForkSequence(session, SequenceId{2}, SequenceId{3}, now).ok());
    // This looks at every sequence: later rounds would begin with cold caches.
    if (round == 0) core->CheckInvariants();
    const std::vector<Order> copies = core->TakeOrders();
    EXPECT_EQ(copies.size(), 1u);
    const auto clock = [] {
      timespec time;
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
      return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    };
    const double begin = clock();
    core->Complete(Lane::kMemory, copies.front().ticket, absl::DataLossError("test"), now);
    shortest = std::min(shortest, clock() - begin);
    for (const uint64_t id : {2, 3}) {
      EXPECT_EQ((*core->sequences().FindSequence(session, SequenceId{id}))->computed_tokens, 0u);
      EXPECT_EQ((*core->sequences().FindSequence(session, SequenceId{id}))->losses, 1u);
      EXPECT_TRUE(core->sequences().FreeSequence(session, SequenceId{id}, now).ok());
    }
    EXPECT_EQ(core->sequences().Shortened(session).size(), 0u);
  }
  return shortest;
}

TEST(FailedCopyTest, CostsWhatItTouches) {
  const double alone = FailureSeconds(1), beside_many = FailureSeconds(30'000);
  EXPECT_LT(beside_many, 20 * alone)
      << "alone " << alone * 1e6 << " us, beside 30,000 sequences " << beside_many * 1e6 << " us";
}

// The processor time of each of `copies` copies that are in flight together and all fail, as when a
// device is lost.
double FailureSecondsOfMany(uint32_t copies) {
  const absl::Time now = absl::UnixEpoch();
  const auto core = *BlockManager::Create(
      {.layout = TinyLayout(4), .tiers = HostTiers({copies}, {copies}), .epoch = Epoch{1}});
  const SessionId session = core->OpenSession("test", absl::InfiniteDuration(), now)->ref.id;
  for (uint32_t i = 0; i < copies; ++i) {
    const std::vector<TokenId> tokens = {i, 1, 2, 3};
    EXPECT_TRUE(
        core->sequences().AddSequence(session, SequenceId{1}, PromptOf({}, tokens), now).ok());
    EXPECT_TRUE(core->sequences().CommitTokens(session, SequenceId{1}, {}, 4, now).ok());
    EXPECT_TRUE(core->sequences().FreeSequence(session, SequenceId{1}, now).ok());
    EXPECT_EQ(core->prefixes().Offload(PromptOf({}, tokens), now)->blocks, 1u);
  }
  core->TakeEvents();
  const std::vector<Order> orders = core->TakeOrders();
  EXPECT_EQ(orders.size(), copies);
  const auto clock = [] {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double begin = clock();
  for (const Order& order : orders) {
    core->Complete(order.lane, order.ticket, absl::DataLossError("test"), now);
  }
  const double seconds = clock() - begin;
  EXPECT_EQ(core->Stats().windows[0].counters.lost_blocks, copies);
  return seconds / copies;
}

TEST(FailedCopyTest, CostsNoLookAtOtherCopies) {
  double few = 1e9, many = 1e9;
  for (int round = 0; round < 5; ++round) few = std::min(few, FailureSecondsOfMany(1000));
  for (int round = 0; round < 3; ++round) many = std::min(many, FailureSecondsOfMany(30'000));
  EXPECT_LT(many, 8 * few) << "of 1,000 copies " << few * 1e6 << " us each, of 30,000 "
                           << many * 1e6 << " us each";
}

}  // namespace
}  // namespace pagoda

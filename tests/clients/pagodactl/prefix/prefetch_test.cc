// The requests of pagodactl prefetch to a cache, and its output, with a client whose answers are
// fixed.
#include "clients/pagodactl/prefix/prefetch.h"

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/error.h"
#include "clients/pagodactl/prefix/ticket_wait.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::Duration kPatience = absl::Seconds(10);

// One round of a prefetch: its orders, and where the blocks were when they had ended.
struct Round {
  PrefetchedPrefix ordered;
  MatchedPrefix after;
};

class ScriptedClient final : public CacheClient {
 public:
  explicit ScriptedClient(std::vector<Medium> media) {
    const char* const names[] = {"hbm", "dram", "nvme"};
    info_.windows.push_back({.window = kFullAttention, .blocks = {}});
    for (const Medium medium : media) {
      const char* name = medium == Medium::kDisk ? "nvme" : names[info_.tiers.size()];
      info_.tiers.push_back({.name = name, .medium = medium});
      info_.windows[0].blocks.push_back(100);
    }
  }

  // The last round's answers hold for all that follow.
  void SetRounds(std::vector<Round> rounds) { rounds_ = {rounds.begin(), rounds.end()}; }
  // The completed tickets that waits in the lane find, one after another. The last one stays.
  void SetCompleted(Lane lane, std::vector<uint64_t> tickets) {
    completed_[static_cast<size_t>(lane)] = {tickets.begin(), tickets.end()};
  }

  const CacheInfo& info() const override { return info_; }
  absl::StatusOr<BatchResult> Execute(absl::Span<const Operation> operations, StepRange) override {
    EXPECT_THAT(operations, SizeIs(1));
    BatchResult batch;
    batch.results.push_back(
        std::visit([&](const auto& op) { return Answer(op, batch); }, operations.front()));
    return batch;
  }
  absl::StatusOr<std::vector<std::unique_ptr<MappedPool>>> MapPools(MemoryAccess) override {
    return absl::UnimplementedError("no pools");
  }

  std::vector<PrefetchPrefix> prefetches;
  std::vector<WaitForTicket> waits;
  absl::Duration wait_time;  // That a wait takes.

 private:
  using Answered = absl::StatusOr<OperationResult>;

  Answered Answer(const PrefetchPrefix& op, BatchResult&) {
    prefetches.push_back(op);
    if (prefetches.size() > 1 && rounds_.size() > 1) rounds_.pop_front();
    return rounds_.front().ordered;
  }
  Answered Answer(const MatchPrefix& op, BatchResult&) {
    // One token more: a prompt's last token never matches.
    std::vector<TokenId> tokens = prefetches.back().tokens;
    tokens.push_back(0);
    EXPECT_EQ(op.tokens, tokens);
    const std::vector<uint64_t>& extras = prefetches.back().extra_token_ids;
    EXPECT_EQ(op.extra_token_ids.size(), extras.empty() ? 0 : tokens.size());
    return rounds_.front().after;
  }
  Answered Answer(const WaitForTicket& op, BatchResult& batch) {
    waits.push_back(op);
    absl::SleepFor(wait_time);
    std::deque<uint64_t>& completed = completed_[static_cast<size_t>(op.lane)];
    const Ticket reached = completed.empty() ? op.ticket : Ticket(completed.front());
    if (completed.size() > 1) completed.pop_front();
    (op.lane == Lane::kMemory  ? batch.completed
     : op.lane == Lane::kFetch ? batch.completed_fetch
                               : batch.completed_backup) = reached;
    if (reached < op.ticket) return MakeError(Reason::kWaitTimeout, "not yet");
    return WaitedForTicket{.completed = reached};
  }
  template <class Other>
  Answered Answer(const Other&, BatchResult&) {
    return absl::UnimplementedError("not asked for");
  }

  CacheInfo info_;
  std::deque<Round> rounds_ = {Round{}};
  std::deque<uint64_t> completed_[kNumLanes];
};

const std::vector<Medium> kThreeTiers = {Medium::kGpu, Medium::kHost, Medium::kDisk};

PrefetchPrefix Prefetch(PrefetchTarget target = PrefetchTarget::kPrimary) {
  return {.name_space = {}, .tokens = {1, 2, 3}, .target = target};
}

TEST(PrefetchTest, ALongPrefixIsFetchedPartByPart) {
  ScriptedClient client(kThreeTiers);
  client.SetRounds({{{.matched_tokens = 96,
                      .blocks = 1,
                      .ready = Ticket(3),
                      .fetched_blocks = 2,
                      .fetch = Ticket(7)},
                     {.cached_tokens = 96, .tokens_by_tier = {16, 32, 48}}},
                    {{.matched_tokens = 96,
                      .blocks = 2,
                      .ready = Ticket(5),
                      .fetched_blocks = 3,
                      .fetch = Ticket(10)},
                     {.cached_tokens = 96, .tokens_by_tier = {48, 48, 0}}},
                    {{.matched_tokens = 96, .blocks = 3, .ready = Ticket(8)},
                     {.cached_tokens = 96, .tokens_by_tier = {96, 0, 0}}}});
  const auto report = RunPrefetch(client, Prefetch(), kPatience);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(client.prefetches, SizeIs(3));
  EXPECT_EQ(report->sum.blocks, 6u);
  EXPECT_EQ(report->sum.fetched_blocks, 5u);
  EXPECT_EQ(report->sum.matched_tokens, 96u);
  EXPECT_EQ(report->sum.ready, Ticket(8)) << "the last one";
  EXPECT_THAT(report->end->tokens_by_tier, ElementsAre(96, 0, 0));
  ASSERT_THAT(client.waits, SizeIs(5));
  EXPECT_EQ(client.waits[0].lane, Lane::kMemory);
  EXPECT_EQ(client.waits[0].ticket, Ticket(3));
  EXPECT_EQ(client.waits[1].lane, Lane::kFetch);
  EXPECT_EQ(client.waits[1].ticket, Ticket(7));
  EXPECT_THAT(PrefetchText(*report, client.info()),
              testing::AllOf(testing::StartsWith("6 blocks onboarded to the hbm tier, 5 blocks "
                                                 "fetched from the nvme tier, in "),
                             testing::EndsWith("\n96 tokens cached: 96 in hbm")));
}

// The memory is too small for the prefix: arriving blocks push out earlier ones.
TEST(PrefetchTest, ARoundThatBringsNothingMoreIsTheLast) {
  ScriptedClient client(kThreeTiers);
  client.SetRounds({{{.matched_tokens = 96, .fetched_blocks = 2, .fetch = Ticket(7)},
                     {.cached_tokens = 96, .tokens_by_tier = {0, 32, 64}}}});
  const auto report = RunPrefetch(client, Prefetch(PrefetchTarget::kMemory), kPatience);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(client.prefetches, SizeIs(2));
  EXPECT_EQ(client.prefetches[1].target, PrefetchTarget::kMemory);
  const std::string text = PrefetchText(*report, client.info());
  EXPECT_THAT(text, testing::StartsWith("4 blocks ordered from the nvme tier, in "));
  EXPECT_THAT(
      text,
      HasSubstr("\n96 tokens cached: 32 in dram, 64 in nvme\n"
                "64 tokens still only on the nvme tier: memory has no free blocks for them now"));
  EXPECT_EQ(report->sum.fetched_blocks, 4u);
  EXPECT_THAT(report->end->tokens_by_tier, ElementsAre(0, 32, 64));
}

TEST(PrefetchTest, WhatAllCameIsNotAskedForAgain) {
  for (const std::vector<Medium>& media :
       {std::vector{Medium::kHost, Medium::kDisk}, kThreeTiers}) {
    ScriptedClient client(media);
    std::vector<uint32_t> tokens(media.size(), 0);
    tokens[media.size() - 2] = 32;
    client.SetRounds({{{.matched_tokens = 32, .fetched_blocks = 2, .fetch = Ticket(7)},
                       {.cached_tokens = 32, .tokens_by_tier = tokens}}});
    // With two tiers, the last one in memory is the first tier.
    const auto target = media.size() == 2 ? PrefetchTarget::kPrimary : PrefetchTarget::kMemory;
    const auto report = RunPrefetch(client, Prefetch(target), kPatience);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_THAT(client.prefetches, SizeIs(1));
    EXPECT_THAT(PrefetchText(*report, client.info()),
                testing::StartsWith("2 blocks fetched from the nvme tier, in "));
  }
}

TEST(PrefetchTest, ADeadlineIsOneForAllRounds) {
  ScriptedClient client(kThreeTiers);
  client.SetRounds({{{.matched_tokens = 96, .fetched_blocks = 2, .fetch = Ticket(7)},
                     {.cached_tokens = 96, .tokens_by_tier = {0, 32, 64}}},
                    {{.matched_tokens = 96, .fetched_blocks = 2, .fetch = Ticket(9)},
                     {.cached_tokens = 96, .tokens_by_tier = {0, 64, 32}}}});
  PrefetchPrefix prefetch = Prefetch();
  prefetch.extra_token_ids = {0, 0, 7};
  prefetch.deadline = absl::Seconds(60);
  ASSERT_TRUE(RunPrefetch(client, prefetch, kPatience).ok());
  ASSERT_THAT(client.prefetches, SizeIs(3));
  EXPECT_EQ(client.prefetches[0].deadline, absl::Seconds(60));
  EXPECT_LT(client.prefetches[1].deadline, absl::Seconds(60));
  EXPECT_LE(client.prefetches[2].deadline, client.prefetches[1].deadline);

  client.prefetches.clear();
  prefetch.deadline = absl::Nanoseconds(1);
  const auto late = RunPrefetch(client, prefetch, kPatience);
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_THAT(client.prefetches, SizeIs(1)) << "its time is over";
  EXPECT_THAT(PrefetchText(*late, client.info()),
              HasSubstr("32 tokens still only on the nvme tier: the 0 us are over"));
}

TEST(PrefetchTest, WhatLeftTheCacheMeanwhileIsSaid) {
  const PrefetchReport report = {
      .sum = {.matched_tokens = 96, .fetched_blocks = 5},
      .elapsed = absl::Milliseconds(12),
      .end = MatchedPrefix{.cached_tokens = 80, .tokens_by_tier = {80, 0, 0}}};
  EXPECT_EQ(PrefetchText(report, ScriptedClient(kThreeTiers).info()),
            "0 blocks onboarded to the hbm tier, 5 blocks ordered from the nvme tier, in 12.00 ms\n"
            "80 tokens cached: 80 in hbm\n"
            "16 tokens left the cache meanwhile");
}

TEST(PrefetchTest, WithoutADiskNothingIsFetched) {
  ScriptedClient two({Medium::kGpu, Medium::kHost});
  two.SetRounds({{{.matched_tokens = 64, .blocks = 4, .ready = Ticket(3)}, {}}});
  const auto moved = RunPrefetch(two, Prefetch(), kPatience);
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_THAT(two.prefetches, SizeIs(1));
  EXPECT_EQ(PrefetchText(*moved, two.info()),
            "4 blocks onboarded to the hbm tier, 64 tokens are cached");
  EXPECT_FALSE(moved->end.has_value());
  const auto nothing = RunPrefetch(two, Prefetch(PrefetchTarget::kMemory), kPatience);
  EXPECT_EQ(PrefetchText(*nothing, two.info()),
            "nothing to fetch, because the cache has no disk tier; 64 tokens are cached");
  EXPECT_EQ(PrefetchText({.sum = {.matched_tokens = 8}}, ScriptedClient({Medium::kHost}).info()),
            "nothing to onboard, because the cache has only one tier; 8 tokens are cached");
}

TEST(PrefetchTest, AnOrderWaitsForNothing) {
  ScriptedClient client(kThreeTiers);
  client.SetRounds({{{.matched_tokens = 96,
                      .blocks = 1,
                      .ready = Ticket(3),
                      .fetched_blocks = 2,
                      .fetch = Ticket(7)},
                     {}}});
  const auto report = OrderPrefetch(client, Prefetch());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(client.waits, IsEmpty());
  EXPECT_EQ(OrderedPrefetchText(*report, client.info()),
            "1 block being onboarded to the hbm tier, 2 blocks ordered from the nvme tier, "
            "96 tokens are cached");
}

TEST(PrefetchTest, ADiskThatBringsNothingIsAnError) {
  ScriptedClient client(kThreeTiers);
  client.SetRounds({{{.fetched_blocks = 2, .fetch = Ticket(7)}, {}}});
  client.SetCompleted(Lane::kFetch, {5});
  const absl::Status status = RunPrefetch(client, Prefetch(), absl::ZeroDuration()).status();
  EXPECT_EQ(ReasonOf(status), Reason::kWaitTimeout);
  EXPECT_THAT(std::string(status.message()), HasSubstr("nothing arrived from disk"));
}

TEST(TicketWaitTest, AWaitGoesOnAsLongAsItsLaneDoes) {
  ScriptedClient client(kThreeTiers);
  client.wait_time = absl::Milliseconds(400);
  client.SetCompleted(Lane::kBackup, {3, 4, 5, 9});
  EXPECT_TRUE(AwaitTicket(client, Ticket(9), Lane::kBackup, absl::Seconds(1)).ok());
  ASSERT_THAT(client.waits, SizeIs(4)) << "longer than the patience, for each look found more";
  EXPECT_EQ(client.waits[3].lane, Lane::kBackup);

  client.waits.clear();
  client.SetCompleted(Lane::kMemory, {3});
  EXPECT_EQ(ReasonOf(AwaitTicket(client, Ticket(9), Lane::kMemory, absl::Seconds(1))),
            Reason::kWaitTimeout);
  EXPECT_THAT(client.waits, SizeIs(testing::Le(3)));
}

TEST(TicketWaitTest, NoTicketIsDone) {
  ScriptedClient client(kThreeTiers);
  EXPECT_TRUE(AwaitTicket(client, Ticket{}, Lane::kFetch, absl::ZeroDuration()).ok());
  EXPECT_THAT(client.waits, IsEmpty());
}

}  // namespace
}  // namespace pagoda

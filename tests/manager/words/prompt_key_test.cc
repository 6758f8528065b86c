// Long prompts and long retentions: their cost depends on what they find, and they are checked
// without the lock.
#include "manager/words/prompt_key.h"

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "base/error.h"
#include "events/event_log.h"
#include "manager/block_manager.h"
#include "manager/sequences/operation_checks.h"
#include "manager/sequences/running_sequences.h"
#include "manager/shared_manager.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

// The processor time of this thread, the shortest of five runs.
double Seconds(const std::function<void()>& work) {
  const auto now = [] {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  double shortest = 1e9;
  for (int i = 0; i < 5; ++i) {
    const double begin = now();
    work();
    shortest = std::min(shortest, now() - begin);
  }
  return shortest;
}

TEST(PromptKeyTest, ABlockHasTheExtrasOfItsTokens) {
  std::mt19937_64 random(7);
  const auto pick = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (int round = 0; round < 500; ++round) {
    const std::vector<TokenId> tokens(1 + pick(40), TokenId{3});
    const auto count = static_cast<uint32_t>(tokens.size());
    std::vector<TokenExtra> all(count);
    std::vector<uint64_t> ids;
    if (pick(2) == 0) {
      for (TokenExtra& extra : all) ids.push_back(extra.extra_id = pick(3));
    }
    std::vector<MultimodalItem> items;
    for (uint32_t at = pick(8); at < count; at += pick(8)) {
      const uint32_t length = std::min(count - at, 1 + pick(9));
      items.push_back(
          {.digest = {random()}, .token_start = at, .token_count = length, .item_offset = pick(5)});
      for (uint32_t i = 0; i < length; ++i) {
        all[at + i].digest = items.back().digest;
        all[at + i].in_item = true;
        all[at + i].item_offset = items.back().item_offset + i;
      }
      at += length;
    }
    const PromptKey key(tokens, ids, items);
    std::vector<TokenExtra> scratch;
    for (uint32_t begin = 0; begin < count; begin += 1 + pick(5)) {
      const uint32_t asked = 1 + pick(6), there = std::min(asked, count - begin);
      const BlockKey block = key.Block(begin, asked, &scratch);
      const BlockKey expected{absl::MakeConstSpan(tokens).subspan(begin, there),
                              absl::MakeConstSpan(all).subspan(begin, there)};
      ASSERT_EQ(block.tokens.size(), there);
      ASSERT_TRUE(SameKey(block, expected));
    }
  }
}

// The number of tokens that 14 MiB hold, with an image.
TEST(LongPromptTest, AMatchCostsWhatItFinds) {
  const auto core = MakeCore(64, 16);
  const SessionId session =
      core->OpenSession("test", absl::InfiniteDuration(), absl::UnixEpoch())->ref.id;
  MatchPrefix match;
  match.tokens.resize(14 << 20, 5);
  match.multimodal_items = {{.digest = {1}, .token_start = 3, .token_count = 1000}};
  const std::vector<TokenId> cached(match.tokens.begin(), match.tokens.begin() + 65);
  ASSERT_TRUE(
      core->Execute(session,
                    AddSequence{
                        .sequence = SequenceId{1},
                        .tokens = cached,
                        .multimodal_items = {{.digest = {1}, .token_start = 3, .token_count = 62}}},
                    absl::UnixEpoch())
          .ok());
  ASSERT_TRUE(
      core->sequences().CommitTokens(session, SequenceId{1}, {}, 64, absl::UnixEpoch()).ok());
  TokenId sum = 0;
  const double read =
      Seconds([&] { sum = std::accumulate(match.tokens.begin(), match.tokens.end(), sum); });
  uint32_t matched = 0;
  const Operation operation = match;
  const double took = Seconds([&] {
    const auto result = core->Execute(session, operation, absl::UnixEpoch());
    matched = std::get<MatchedPrefix>(*result).matched_tokens;
  });
  EXPECT_EQ(matched, 64u) << sum;
  EXPECT_LT(took, read / 10) << "to read the tokens once takes " << read * 1e6 << " us, a match "
                             << took * 1e6;
  RecordProperty("match_us", static_cast<int>(took * 1e6));
}

TEST(LongPromptTest, ARetentionIsCheckedWithoutFormatting) {
  SequenceRetention retention;
  for (uint32_t i = 0; i < 200'000; ++i) {
    retention.ranges.push_back({.token_start = 2 * i, .token_end = 2 * i + 1});
  }
  uint64_t sum = 0;
  const double read = Seconds([&] {
    for (const RetentionRange& range : retention.ranges) sum += range.token_start;
  });
  const double took = Seconds([&] { ASSERT_TRUE(CheckRetention(retention).ok()); });
  EXPECT_LT(took, 10 * read) << "to walk over the ranges takes " << read * 1e6 << " us, to check "
                             << took * 1e6 << " us; " << sum;
}

TEST(LongPromptTest, WhatIsCheckedBeforeTheLockIsRefusedInItsPlace) {
  EventLog log({});
  SharedManager manager(MakeCore(8, 4), &log);
  const SessionRef session = manager.OpenSession("test", absl::InfiniteDuration())->ref;
  AddSequence wrong{.sequence = SequenceId{1}, .tokens = std::vector<TokenId>(12, 1)};
  for (uint32_t i = 0; i < 12; ++i) {
    wrong.multimodal_items.push_back({.token_start = i, .token_count = 1});
  }
  AddSequence right = wrong;
  right.sequence = SequenceId{2};
  wrong.multimodal_items.back().token_count = 2;
  SetRetention order{.tokens = {1}};
  for (uint32_t i = 20; i > 0; --i) order.retention.ranges.push_back({.token_start = i});
  const std::vector<Operation> operations = {MatchPrefix{.tokens = {1, 2}}, wrong, right, order,
                                             MatchPrefix{.tokens = {1, 2}}};
  EXPECT_TRUE(HasLongContent(wrong) && HasLongContent(right) && HasLongContent(order));
  EXPECT_FALSE(HasLongContent(operations.front()));
  const absl::StatusOr<BatchResult> batch = manager.Execute(session, operations);
  ASSERT_TRUE(batch.ok());
  ASSERT_EQ(batch->results.size(), 5u);
  EXPECT_TRUE(batch->results[0].ok() && batch->results[2].ok() && batch->results[4].ok());
  EXPECT_EQ(ReasonOf(batch->results[1].status()), Reason::kInvalidArgument);
  EXPECT_EQ(ReasonOf(batch->results[3].status()), Reason::kInvalidArgument);
}

TEST(LongPromptTest, TheCoreTakesTheCallersWordForTheContent) {
  const auto core = MakeCore(8, 4);
  const SessionId session =
      core->OpenSession("test", absl::InfiniteDuration(), absl::UnixEpoch())->ref.id;
  const absl::Status refusal = MakeError(Reason::kInvalidArgument, "checked by the caller");
  const AddSequence add{.sequence = SequenceId{1}, .tokens = {1, 2, 3}};
  EXPECT_EQ(core->Execute(session, add, absl::UnixEpoch(), &refusal).status(), refusal);
  const absl::Status fine;
  EXPECT_TRUE(core->Execute(session, add, absl::UnixEpoch(), &fine).ok());
}

}  // namespace
}  // namespace pagoda

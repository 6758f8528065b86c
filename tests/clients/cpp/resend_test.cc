#include "clients/cpp/resend.h"

#include <algorithm>
#include <vector>

#include "clients/cpp/backoff.h"
#include "gtest/gtest.h"

namespace pagoda {
namespace {

const CacheInfo kCache = {.tokens_per_block = 16,
                          .windows = {{.window = kFullAttention, .blocks = {200'000}}}};
const CacheInfo kSmallCache = {.tokens_per_block = 16,
                               .windows = {{.window = kFullAttention, .blocks = {1'000}}}};

TEST(ResendTest, WhatChangesNothingMayRunTwice) {
  EXPECT_EQ(ResendOf({}, kCache), Resend::kFreely);
  const std::vector<Operation> reads = {MatchPrefix{.tokens = std::vector<TokenId>(1 << 20)},
                                        DescribePools{}, ListPins{}, WaitForTicket{Ticket(3)},
                                        DescribeSequence{SequenceId(1)}};
  EXPECT_EQ(ResendOf(reads, kCache), Resend::kFreely);
}

TEST(ResendTest, AStepOfAnEngineIsSentUnderItsId) {
  std::vector<Operation> step;
  for (uint64_t i = 0; i < 2048; ++i) {
    step.push_back(AppendTokens{.sequence = SequenceId(i), .tokens = {1}});
  }
  EXPECT_EQ(ResendOf(step, kCache), Resend::kUnderId);
  const std::vector<Operation> prompt = {
      AddSequence{.sequence = SequenceId(1), .tokens = std::vector<TokenId>(1'300'000)}};
  EXPECT_EQ(ResendOf(prompt, kCache), Resend::kUnderId);
}

TEST(ResendTest, AnAnswerThatMayBeTooLongIsNotAskedForTwice) {
  const std::vector<Operation> prompt = {
      AddSequence{.sequence = SequenceId(1), .tokens = std::vector<TokenId>(1'500'000)}};
  EXPECT_EQ(ResendOf(prompt, kCache), Resend::kNever);
  const std::vector<Operation> many(4096, FreeSequence{SequenceId(1)});
  EXPECT_EQ(ResendOf(many, kCache), Resend::kNever);
  const std::vector<Operation> mixed = {FreeSequence{SequenceId(1)}, DescribePools{}};
  EXPECT_EQ(ResendOf(mixed, kCache), Resend::kNever);
  const std::vector<Operation> described = {
      AllocateBlocks{.count = 10}, DescribeBlocks{.blocks = std::vector<BlockRef>(110'000)}};
  EXPECT_EQ(ResendOf(described, kCache), Resend::kNever);
}

TEST(ResendTest, AForksAnswerIsAtMostTheCache) {
  const std::vector<Operation> fork = {ForkSequence{SequenceId(1), SequenceId(2)}};
  EXPECT_EQ(ResendOf(fork, kSmallCache), Resend::kUnderId);
  EXPECT_EQ(ResendOf(fork, kCache), Resend::kNever);
}

TEST(BackoffTest, PausesGrowToTheirBoundAndDiffer) {
  Backoff backoff(absl::Milliseconds(10), absl::Milliseconds(100));
  absl::Duration bound = absl::Milliseconds(10);
  for (int i = 0; i < 10; ++i) {
    const absl::Duration pause = backoff.Next();
    EXPECT_GE(pause, bound / 2);
    EXPECT_LE(pause, bound);
    bound = std::min(2 * bound, absl::Milliseconds(100));
  }
  Backoff other(absl::Seconds(1), absl::Seconds(1));
  EXPECT_NE(other.Next(), other.Next());
}

}  // namespace
}  // namespace pagoda

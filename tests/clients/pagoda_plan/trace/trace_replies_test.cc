#include "clients/pagoda_plan/trace/trace_replies.h"

#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint32_t kBlock = 16;

TraceRequest Request(std::vector<uint64_t> ids, uint32_t input, uint32_t output) {
  return {.timestamp_ms = 0,
          .hash_ids = std::move(ids),
          .input_tokens = input,
          .output_tokens = output};
}

std::vector<uint64_t> ReplyIds(const std::vector<TraceRequest>& requests, const TraceTurn& turn) {
  std::vector<uint64_t> ids;
  for (uint32_t k = 0; k < turn.reply_blocks; ++k) ids.push_back(ReplyBlockId(requests, turn, k));
  return ids;
}

// 40 tokens and a reply of 30: the prompt fills 2 blocks, and the reply 2 more.
TEST(TraceRepliesTest, TheNextPromptNamesTheReply) {
  const std::vector<TraceRequest> requests = {Request({1, 2, 3}, 40, 30),
                                              Request({1, 2, 4, 5, 6, 7}, 90, 0)};
  const std::vector<TraceTurn> turns = FindReplies(requests, kBlock);
  EXPECT_EQ(turns[0].next, 1u);
  EXPECT_THAT(turns[0].prompt_nodes, ElementsAre(0, 1));
  EXPECT_THAT(ReplyIds(requests, turns[0]), ElementsAre(4, 5));
  EXPECT_EQ(turns[1].next, std::nullopt);
  EXPECT_THAT(turns[1].prompt_nodes, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(turns[1].reply_blocks, 0u);
}

TEST(TraceRepliesTest, APromptThatIsTooShortIsNoNextTurn) {
  const std::vector<TraceRequest> requests = {Request({1, 2, 3}, 40, 30),
                                              Request({1, 2, 4, 5, 6}, 69, 0)};
  EXPECT_EQ(FindReplies(requests, kBlock)[0].next, std::nullopt);
}

TEST(TraceRepliesTest, ALostReplyHasIdsOfItsOwn) {
  const uint64_t high = ~uint64_t{0};
  const std::vector<TraceRequest> requests = {Request({high}, 16, 32), Request({2}, 16, 16)};
  const std::vector<TraceTurn> turns = FindReplies(requests, kBlock);
  std::vector<uint64_t> all = ReplyIds(requests, turns[0]);
  const std::vector<uint64_t> second = ReplyIds(requests, turns[1]);
  all.insert(all.end(), second.begin(), second.end());
  ASSERT_EQ(all.size(), 3u);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_NE(all[i] >> 32, high >> 32);
    EXPECT_NE(all[i] >> 32, 0u);
    for (size_t j = 0; j < i; ++j) EXPECT_NE(all[i], all[j]);
  }
}

// The first block is a system prompt. The second conversation does not answer the first one.
TEST(TraceRepliesTest, ASharedPrefixIsNoConversation) {
  const std::vector<TraceRequest> requests = {
      Request({1, 2}, 32, 16), Request({1, 3}, 20, 16),
      Request({1, 4, 5, 6}, 60, 16),      // A third conversation.
      Request({1, 2, 7, 8}, 60, 0),       // The first one goes on.
      Request({1, 4, 5, 9, 9, 9}, 96, 0)  // The third one goes on.
  };
  const std::vector<TraceTurn> turns = FindReplies(requests, kBlock);
  EXPECT_EQ(turns[0].next, 3u);
  EXPECT_EQ(turns[1].next, std::nullopt);
  EXPECT_EQ(turns[2].next, 4u);
}

// The second turn adds less than a block, and the third one continues it all the same.
TEST(TraceRepliesTest, ABlockOfAnEarlierTurnBelongsToTheConversation) {
  const std::vector<TraceRequest> requests = {Request({1, 2}, 32, 2), Request({1, 2, 3}, 40, 20),
                                              Request({1, 2, 4, 5, 6}, 80, 0)};
  const std::vector<TraceTurn> turns = FindReplies(requests, kBlock);
  EXPECT_EQ(turns[0].next, 1u);
  EXPECT_EQ(turns[1].next, 2u);
  EXPECT_THAT(ReplyIds(requests, turns[1]), ElementsAre(4));
}

TEST(TraceRepliesTest, AReplyIsInOneOfSeveralAttempts) {
  const std::vector<TraceRequest> requests = {Request({1, 2}, 32, 16), Request({1, 2, 3, 4}, 64, 0),
                                              Request({1, 2, 5, 6}, 64, 0)};
  const std::vector<TraceTurn> turns = FindReplies(requests, kBlock);
  EXPECT_EQ(turns[0].next, 1u);
  EXPECT_THAT(ReplyIds(requests, turns[0]), ElementsAre(3));
}

TEST(TraceRepliesTest, ChatIdsDecideWhereThereAreAny) {
  std::vector<TraceRequest> requests = {Request({1}, 16, 16), Request({1}, 16, 16),
                                        Request({1, 2, 3}, 48, 0)};
  for (int i = 0; i < 3; ++i) requests[i].chat_id = i + 10;
  requests[2].parent_chat_id = 10;
  std::vector<TraceTurn> turns = FindReplies(requests, kBlock);
  EXPECT_EQ(turns[0].next, 2u);
  EXPECT_EQ(turns[1].next, std::nullopt);
  // A request whose prompt does not begin with its parent's has lost it.
  requests[2].hash_ids[0] = 8;
  turns = FindReplies(requests, kBlock);
  EXPECT_EQ(turns[0].next, std::nullopt);
  // Without a parent, nothing is guessed.
  requests[2].hash_ids[0] = 1;
  requests[2].parent_chat_id.reset();
  EXPECT_EQ(FindReplies(requests, kBlock)[0].next, std::nullopt);
}

TEST(TraceRepliesTest, EqualIdsAfterDifferentPrefixesAreDifferentBlocks) {
  const std::vector<TraceRequest> requests = {Request({1, 9}, 32, 0), Request({2, 9}, 32, 0),
                                              Request({1, 9}, 32, 0)};
  const std::vector<TraceTurn> turns = FindReplies(requests, kBlock);
  EXPECT_NE(turns[0].prompt_nodes, turns[1].prompt_nodes);
  EXPECT_EQ(turns[0].prompt_nodes, turns[2].prompt_nodes);
}

TEST(TraceRepliesTest, ALengthBeyondTheIdsIsCutToThem) {
  const std::vector<TraceRequest> requests = {Request({1}, 100, 0), Request({}, 100, 20)};
  const std::vector<TraceTurn> turns = FindReplies(requests, kBlock);
  EXPECT_EQ(turns[0].prompt_tokens, 16u);
  EXPECT_EQ(turns[1].prompt_tokens, 0u);
  EXPECT_THAT(turns[1].prompt_nodes, IsEmpty());
  EXPECT_EQ(turns[1].reply_blocks, 1u);
}

TEST(TraceRepliesTest, FollowsTheTurnsOfTheSample) {
  const auto trace = ReadTrace(BAILIAN_TRACE);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->odd_lengths, 0u);
  const std::vector<TraceTurn> turns = FindReplies(trace->requests, trace->tokens_per_block);
  ASSERT_EQ(turns.size(), 6u);
  EXPECT_EQ(turns[0].next, 2u);
  EXPECT_EQ(turns[1].next, 5u);
  EXPECT_EQ(turns[2].next, 4u);
  EXPECT_THAT(ReplyIds(trace->requests, turns[0]), ElementsAre(7, 8));
  EXPECT_THAT(ReplyIds(trace->requests, turns[2]), ElementsAre(12, 13));
}

}  // namespace
}  // namespace pagoda

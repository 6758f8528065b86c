#include "server/bridges/smg_messages.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "grpcpp/support/slice.h"

namespace pagoda::server {
namespace {

constexpr Identity kOperator{};
constexpr Identity kAlice{Role::kTenant, TenantId(1)};
constexpr Identity kBob{Role::kTenant, TenantId(2)};

class SmgMessagesTest : public ::testing::Test {
 protected:
  SmgMessagesTest()
      : tenants_(*TenantTable::Create({{.name = "alice"}, {.name = "bob"}}, 1)),
        sets_({.tokens_per_block = 1}, &tenants_) {}

  // Removes this many of alice's blocks.
  static RouterBatch Batch(uint64_t number, size_t blocks = 1) {
    return {.number = number,
            .events = {{kAlice.tenant, BlocksRemoved{.hashes = std::vector<BlockHash>(
                                                         blocks, BlockHash(~uint64_t{0}))}}}};
  }
  static smg::grpc::common::KvEventBatch Parse(const grpc::ByteBuffer& bytes) {
    grpc::Slice slice;
    EXPECT_TRUE(bytes.DumpToSingleSlice(&slice).ok());
    smg::grpc::common::KvEventBatch message;
    EXPECT_TRUE(message.ParseFromArray(slice.begin(), static_cast<int>(slice.size())));
    return message;
  }

  TenantTable tenants_;
  SmgMessageSets sets_;
};

TEST_F(SmgMessagesTest, ABatchIsEncodedOnceForAllWhoSeeTheSame) {
  constexpr uint64_t kBatches = 100;
  const std::vector<std::shared_ptr<SmgMessages>> streams = {
      sets_.Of(kOperator), sets_.Of(kOperator), sets_.Of(kOperator), sets_.Of(kAlice),
      sets_.Of(kAlice),    sets_.Of(kBob),      sets_.Of(kBob)};
  for (uint64_t number = 1; number <= kBatches; ++number) {
    for (const auto& messages : streams) messages->Get(Batch(number));
  }
  EXPECT_EQ(sets_.encoded(), 3 * kBatches) << "the operators', alice's and bob's";
}

TEST_F(SmgMessagesTest, EachKindOfViewerHasItsOwn) {
  const RouterBatch batch = Batch(7);
  for (const auto& [caller, events] : {std::pair(kOperator, 1), {kAlice, 1}, {kBob, 0}}) {
    const auto message = Parse(sets_.Of(caller)->Get(batch));
    EXPECT_EQ(message.sequence_number(), 7u);
    EXPECT_EQ(message.events_size(), events);
  }
}

// At 3 MB each, only the last message is kept.
TEST_F(SmgMessagesTest, WhoIsFarBehindHasItsOwnEncoded) {
  const auto messages = sets_.Of(kOperator);
  constexpr size_t kBlocks = 300'000;
  for (const uint64_t number : {1, 2, 2, 3, 3}) messages->Get(Batch(number, kBlocks));
  EXPECT_EQ(sets_.encoded(), 3u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Parse(messages->Get(Batch(1, kBlocks))).sequence_number(), 1u);
  }
  EXPECT_EQ(sets_.encoded(), 5u);
  messages->Get(Batch(3, kBlocks));
  EXPECT_EQ(sets_.encoded(), 5u) << "those who keep up still share theirs";
}

// Slow subscribers see batches with gaps between them.
TEST_F(SmgMessagesTest, ABatchThatNobodyAskedForIsNotTakenForAnother) {
  const auto messages = sets_.Of(kOperator);
  for (const uint64_t number : {2, 5, 3, 5, 2, 4}) {
    EXPECT_EQ(Parse(messages->Get(Batch(number))).sequence_number(), number);
  }
  EXPECT_EQ(sets_.encoded(), 4u) << "2, 5, 3 and 4";
}

}  // namespace
}  // namespace pagoda::server

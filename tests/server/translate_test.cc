#include "server/translate.h"

#include <gtest/gtest.h>

#include <variant>

#include "google/rpc/error_details.pb.h"
#include "pools/error.h"
#include "server/translate_events.h"

namespace pagoda::server {
namespace {

TEST(TranslateTest, ZeroOnTheWireIsFullAttention) {
  EXPECT_EQ(WindowFromProto(0), kFullAttention);
  EXPECT_EQ(WindowToProto(kFullAttention), 0u);
  EXPECT_EQ(WindowFromProto(128), WindowSize(128));
  EXPECT_EQ(WindowToProto(WindowSize(128)), 128u);
}

TEST(TranslateTest, OperationsKeepEveryField) {
  v1::Operation proto;
  v1::AddSequenceRequest* add = proto.mutable_add_sequence();
  add->set_sequence_id(9);
  add->add_tokens(1);
  add->add_tokens(2);
  add->set_room_tokens(1);
  add->mutable_namespace_()->set_lora_id(0);
  add->mutable_namespace_()->set_cache_salt("s");
  const auto operation = std::get<AddSequence>(*OperationFromProto(proto));
  EXPECT_EQ(operation.sequence, SequenceId(9));
  EXPECT_EQ(operation.tokens, (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(operation.room_tokens, 1u);
  EXPECT_EQ(operation.name_space, (NamespaceKey{.lora_id = 0, .cache_salt = "s"}));

  proto.mutable_free_blocks()->set_window_size(64);
  proto.mutable_free_blocks()->add_blocks()->set_block_id(5);
  proto.mutable_free_blocks()->mutable_blocks(0)->set_generation(6);
  const auto free_blocks = std::get<FreeBlocks>(*OperationFromProto(proto));
  EXPECT_EQ(free_blocks.window, WindowSize(64));
  EXPECT_EQ(free_blocks.blocks, (std::vector<BlockRef>{{BlockId(5), Generation(6)}}));

  proto.mutable_append_tokens()->set_sequence_id(3);
  proto.mutable_append_tokens()->add_tokens(8);
  proto.mutable_append_tokens()->set_computed_tokens(4);
  const auto append = std::get<AppendTokens>(*OperationFromProto(proto));
  EXPECT_EQ(append.sequence, SequenceId(3));
  EXPECT_EQ(append.tokens, std::vector<TokenId>{8});
  EXPECT_EQ(append.computed_tokens, 4u);
}

// The wire's oneof and the core's variant: kind by kind, the operation and then its result.
TEST(TranslateTest, EveryServedKindGoesThereAndItsResultComesBack) {
  using Kind = v1::Operation::OperationCase;
  const struct {
    Kind kind;
    v1::OperationResult::ResultCase result;
    OperationResult value;
  } kinds[] = {
      {Kind::kAllocateBlocks, v1::OperationResult::kAllocateBlocks, AllocatedBlocks{}},
      {Kind::kFreeBlocks, v1::OperationResult::kFreeBlocks, FreedBlocks{}},
      {Kind::kAddSequence, v1::OperationResult::kAddSequence, AddedSequence{}},
      {Kind::kReserveTokens, v1::OperationResult::kReserveTokens, ReservedTokens{}},
      {Kind::kCommitTokens, v1::OperationResult::kCommitTokens, CommittedTokens{}},
      {Kind::kAppendTokens, v1::OperationResult::kAppendTokens, AppendedTokens{}},
      {Kind::kFreeSequence, v1::OperationResult::kFreeSequence, FreedSequence{}},
      {Kind::kMatchPrefix, v1::OperationResult::kMatchPrefix, MatchedPrefix{}},
      {Kind::kDescribePools, v1::OperationResult::kDescribePools, DescribedPools{}},
      {Kind::kDescribeSequence, v1::OperationResult::kDescribeSequence, DescribedSequence{}},
  };
  const auto* type = v1::Operation::descriptor();
  for (size_t i = 0; i < std::size(kinds); ++i) {
    v1::Operation proto;
    proto.GetReflection()->MutableMessage(&proto, type->FindFieldByNumber(kinds[i].kind));
    const absl::StatusOr<Operation> operation = OperationFromProto(proto);
    ASSERT_TRUE(operation.ok()) << operation.status();
    EXPECT_EQ(operation->index(), i);
    EXPECT_EQ(kinds[i].value.index(), i);
    v1::OperationResult result;
    OperationResultToProto(kinds[i].value, &result);
    EXPECT_EQ(result.result_case(), kinds[i].result);
    EXPECT_FALSE(result.has_error());
  }
  EXPECT_EQ(std::size(kinds), std::variant_size_v<Operation>);
}

TEST(TranslateTest, AnOperationThatAsksForNothingIsRefused) {
  EXPECT_EQ(ReasonOf(OperationFromProto(v1::Operation()).status()), Reason::kInvalidArgument);
}

TEST(TranslateTest, AFailedOperationHasOnlyItsError) {
  v1::OperationResult result;
  OperationResultToProto(MakeError(Reason::kUnknownSequence, "no sequence 4"), &result);
  EXPECT_EQ(result.result_case(), v1::OperationResult::RESULT_NOT_SET);
  EXPECT_EQ(result.error().code(), static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_EQ(result.error().message(), "no sequence 4");
}

TEST(TranslateTest, APoolMappingTellsItsStrides) {
  PoolMapping mapping;
  mapping.window = kFullAttention;
  mapping.num_slots = 10;
  mapping.layout = {.layers = {0, 2},
                    .num_kv_heads = 3,
                    .head_dim = 8,
                    .dtype = DType::kBFloat16,
                    .kv_factor = 2,
                    .tokens_per_block = 4};
  mapping.segments = {{.shm_name = "/x", .size_bytes = 99, .num_slots = 10}};
  v1::OperationResult result;
  OperationResultToProto(OperationResult(DescribedPools{{mapping}}), &result);
  const v1::PoolMapping& proto = result.describe_pools().pools(0);
  EXPECT_EQ(proto.dtype(), v1::DTYPE_BFLOAT16);
  EXPECT_EQ(proto.tier(), v1::TIER_PRIMARY);
  EXPECT_EQ(proto.token_stride_bytes(), 16u);
  EXPECT_EQ(proto.head_stride_bytes(), 64u);
  EXPECT_EQ(proto.kv_stride_bytes(), 192u);
  EXPECT_EQ(proto.layer_stride_bytes(), 384u);
  EXPECT_EQ(proto.slot_stride_bytes(), 768u);
  EXPECT_EQ(proto.layers(1), 2u);
  EXPECT_EQ(proto.segments(0).shm_name(), "/x");
  EXPECT_EQ(proto.segments(0).size_bytes(), 99u);
}

TEST(TranslateTest, TimesKeepTheirNanosecondsAlsoBefore1970) {
  const auto after = TimeToProto(absl::UnixEpoch() + absl::Nanoseconds(1'500'000'007));
  EXPECT_EQ(after.seconds(), 1);
  EXPECT_EQ(after.nanos(), 500'000'007);
  const auto before = TimeToProto(absl::UnixEpoch() - absl::Nanoseconds(1));
  EXPECT_EQ(before.seconds(), -1);
  EXPECT_EQ(before.nanos(), 999'999'999);
  EXPECT_EQ(DurationToProto(absl::Milliseconds(2500)).seconds(), 2);
  EXPECT_EQ(DurationToProto(absl::Milliseconds(2500)).nanos(), 500'000'000);
}

TEST(TranslateEventsTest, AStoredEventGivesEachBlockItsTokens) {
  Event event;
  event.revision = Revision(7);
  event.what = StoredEvent{.parent_hash = BlockHash(11),
                           .parent = BlockId(2),
                           .name_space = {.cache_salt = "s"},
                           .blocks = {{.id = BlockId(3), .hash = BlockHash(12), .token_count = 2},
                                      {.id = BlockId(4), .hash = BlockHash(13), .token_count = 1}},
                           .tokens = {5, 6, 7}};
  v1::Event proto;
  EventToProto(event, &proto);
  EXPECT_EQ(proto.revision(), 7u);
  EXPECT_EQ(proto.window_size(), 0u);
  ASSERT_TRUE(proto.has_stored());
  EXPECT_EQ(proto.stored().parent_hash(), 11u);
  EXPECT_EQ(proto.stored().parent_block_id(), 2u);
  EXPECT_EQ(proto.stored().namespace_().cache_salt(), "s");
  ASSERT_EQ(proto.stored().blocks_size(), 2);
  EXPECT_EQ(proto.stored().blocks(0).tokens_size(), 2);
  EXPECT_EQ(proto.stored().blocks(1).tokens(0), 7u);
  EXPECT_EQ(proto.stored().blocks(1).priority(), 35u);
}

TEST(TranslateEventsTest, ARootBlockHasNoParent) {
  Event event;
  event.what = StoredEvent{.blocks = {{.id = BlockId(0)}}};
  v1::Event proto;
  EventToProto(event, &proto);
  EXPECT_FALSE(proto.stored().has_parent_hash());
  EXPECT_FALSE(proto.stored().has_parent_block_id());
}

TEST(TranslateEventsTest, ARemovalKeepsReasonScopeIdsAndHashes) {
  Event event;
  event.window = WindowSize(128);
  event.what = RemovedEvent{.reason = RemovalReason::kEvicted,
                            .blocks = {BlockId(1), BlockId(2)},
                            .hashes = {BlockHash(10), BlockHash(20)}};
  v1::Event proto;
  EventToProto(event, &proto);
  EXPECT_EQ(proto.window_size(), 128u);
  EXPECT_EQ(proto.removed().reason(), v1::REMOVAL_REASON_EVICTED);
  EXPECT_EQ(proto.removed().scope(), v1::REMOVAL_SCOPE_UNSPECIFIED);
  EXPECT_EQ(proto.removed().block_ids(1), 2u);
  EXPECT_EQ(proto.removed().block_hashes(1), 20u);

  event.what =
      RemovedEvent{.reason = RemovalReason::kCleared, .scope = RemovedEvent::Scope::kWindow};
  EventToProto(event, &proto);
  EXPECT_EQ(proto.removed().reason(), v1::REMOVAL_REASON_CLEARED);
  EXPECT_EQ(proto.removed().scope(), v1::REMOVAL_SCOPE_WINDOW);
}

}  // namespace
}  // namespace pagoda::server

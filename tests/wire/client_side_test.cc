#include "wire/vocabulary.h"

#include <string>
#include <utility>

#include "wire/operations.h"
#include "wire/results.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "wire/cache_info.h"
#include "wire/rows.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class Proto>
Proto Parse(const std::string& text) {
  Proto proto;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &proto)) << text;
  return proto;
}

template <class Result>
Result ResultOf(const std::string& text) {
  const absl::StatusOr<OperationResult> result =
      OperationResultFromProto(Parse<v1::OperationResult>(text));
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(std::holds_alternative<Result>(*result)) << text;
  return std::get<Result>(*result);
}

const BlockHandle kHandle{BlockId(4), Generation(2), SlotIndex(9)};

AddSequence MakeAdd() {
  AddSequence add;
  add.sequence = SequenceId(7);
  add.name_space.lora_id = 0;
  add.name_space.cache_salt = "s";
  add.name_space.tenant = "t";
  add.tokens = {1, 2, 3};
  add.reserved_tokens = 2;
  add.extra_token_ids = {0, 9, 0};
  add.multimodal_items = {
      {.digest = {1, 0, 0, 2}, .token_start = 1, .token_count = 2, .item_offset = 4}};
  add.retention.ranges = {
      {.token_start = 0,
       .token_end = 2,
       .retention = {.priority = Priority(0), .duration = absl::Seconds(30)}},
      {.token_start = 2, .token_end = std::nullopt, .retention = {.priority = Priority(90)}}};
  add.retention.generated =
      BlockRetention{.priority = Priority(10), .duration = absl::Milliseconds(5)};
  add.tenant = "u";
  add.whole_blocks_only = true;
  add.uncounted = true;
  return add;
}

constexpr char kAddText[] =
    "add_sequence { sequence_id: 7 tokens: [1, 2, 3] reserved_tokens: 2"
    " namespace { lora_id: 0 cache_salt: 's' tenant: 't' } extra_token_ids: [0, 9, 0]"
    " multimodal_items { digest: '\\001\\000\\000\\000\\000\\000\\000\\000"
    "\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000"
    "\\002\\000\\000\\000\\000\\000\\000\\000' token_start: 1 token_count: 2 item_offset: 4 }"
    " retention { token_end: 2 duration_ms: 30000 } retention { token_start: 2 priority: 90 }"
    " generated_priority: 10 generated_duration_ms: 5 tenant: 'u'"
    " whole_blocks_only: true uncounted: true }";

const NamespaceKey kSalted{.lora_id = std::nullopt, .cache_salt = "s"};

// A field of rows in protobuf's text format.
std::string RowsText(const std::vector<uint32_t>& numbers) {
  return absl::StrCat("'", absl::CHexEscape(RowsToBytes<uint32_t>(numbers)), "'");
}

// Each operation and its text on the wire. One entry for each alternative of the variant.
std::vector<std::pair<Operation, std::string>> AllOperations() {
  return {
      {AllocateBlocks{kFullAttention, 3}, "allocate_blocks { count: 3 }"},
      {FreeBlocks{WindowSize(128), {{BlockId(4), Generation(2)}}},
       "free_blocks { window_size: 128 blocks: " + RowsText({4, 2}) + " }"},
      {MakeAdd(), kAddText},
      {ReserveTokens{SequenceId(7), 5}, "reserve_tokens { sequence_id: 7 count: 5 }"},
      {CommitTokens{SequenceId(7), {8, 9}, 4, 2},
       "commit_tokens { sequence_id: 7 tokens: [8, 9] computed_tokens: 4 known_losses: 2 }"},
      {AppendTokens{SequenceId(7), {8}, 3, 1},
       "append_tokens { sequence_id: 7 tokens: 8 computed_tokens: 3 known_losses: 1 }"},
      {FreeSequence{SequenceId(7)}, "free_sequence { sequence_id: 7 }"},
      {MatchPrefix{{}, {5}, {6}, {}}, "match_prefix { tokens: 5 namespace {} extra_token_ids: 6 }"},
      {DescribePools{}, "describe_pools {}"},
      {DescribeSequence{SequenceId(7)}, "describe_sequence { sequence_id: 7 }"},
      {ForkSequence{SequenceId(7), SequenceId(8)},
       "fork_sequence { sequence_id: 7 new_sequence_id: 8 }"},
      {TruncateSequence{SequenceId(7), 3}, "truncate_sequence { sequence_id: 7 token_count: 3 }"},
      {QueryCapacity{SequenceId(7), kSalted, {5}, 4, {}, {}, "u"},
       "query_capacity { sequence_id: 7 namespace { cache_salt: 's' } tokens: 5"
       " max_new_tokens: 4 tenant: 'u' }"},
      {OffloadPrefix{kSalted, {5}}, "offload_prefix { namespace { cache_salt: 's' } tokens: 5 }"},
      {PrefetchPrefix{kSalted, {5}}, "prefetch_prefix { namespace { cache_salt: 's' } tokens: 5 }"},
      {PinPrefix{kSalted, {5}, absl::Seconds(2)},
       "pin_prefix { namespace { cache_salt: 's' } tokens: 5 lease_ms: 2000 }"},
      {UnpinPrefix{PinId(3)}, "unpin_prefix { pin_id: 3 }"},
      {ListPins{}, "list_pins {}"},
      {InvalidatePrefix{kSalted, {5}},
       "invalidate_prefix { namespace { cache_salt: 's' } tokens: 5 }"},
      {SetRetention{kSalted, {5}, {{{0, 1, {Priority(7)}}}, std::nullopt}},
       "set_retention { namespace { cache_salt: 's' } tokens: 5"
       " retention { token_end: 1 priority: 7 } }"},
      {WaitForTicket{Ticket(6)}, "wait_for_ticket { ticket: 6 }"},
      {AppendStep{.sequences = {SequenceId(7), SequenceId(9)},
                  .token_counts = {1, 2},
                  .computed_tokens = {3, 0},
                  .known_losses = {1, 0},
                  .tokens = {8, 5, 6}},
       "append_step { sequence_ids: [7, 9] tokens: [8, 5, 6] token_counts: [1, 2]"
       " computed_tokens: [3, 0] known_losses: [1, 0] }"},
      {FillBlocks{WindowSize(128),
                  {{{BlockId(4), Generation(2)}, 3, BlockFill::End::kFinal},
                   {{BlockId(5), Generation(1)}, 7}}},
       "fill_blocks { window_size: 128 blocks: " + RowsText({4, 2, 3, 1, 5, 1, 7, 0}) + " }"},
      {DescribeBlocks{WindowSize(128), {{BlockId(4), Generation(2)}}},
       "describe_blocks { window_size: 128 blocks: " + RowsText({4, 2}) + " }"},
  };
}

TEST(ClientSideTest, EveryOperationHasItsMessage) {
  const auto cases = AllOperations();
  ASSERT_EQ(cases.size(), std::variant_size_v<OperationVariant>);
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto& [operation, text] = cases[i];
    ASSERT_EQ(operation.index(), i);
    const v1::Operation proto = OperationToProto(operation);
    EXPECT_TRUE(
        google::protobuf::util::MessageDifferencer::Equals(proto, Parse<v1::Operation>(text)))
        << proto.ShortDebugString();
  }
}

// The wire counts whole milliseconds. No valid duration becomes one with another meaning.
TEST(ClientSideTest, DurationsAreRoundedUpAndInfinityIsAbsent) {
  const auto lease = [](absl::Duration duration) {
    return OperationToProto(PinPrefix{{}, {5}, duration}).pin_prefix();
  };
  EXPECT_EQ(lease(absl::Nanoseconds(1)).lease_ms(), 1u);
  EXPECT_EQ(lease(absl::Microseconds(2001)).lease_ms(), 3u);
  EXPECT_TRUE(lease(absl::ZeroDuration()).has_lease_ms());
  EXPECT_EQ(lease(absl::ZeroDuration()).lease_ms(), 0u);
  EXPECT_TRUE(lease(-absl::InfiniteDuration()).has_lease_ms());
  EXPECT_EQ(lease(-absl::InfiniteDuration()).lease_ms(), 0u);
  EXPECT_FALSE(lease(absl::InfiniteDuration()).has_lease_ms());
}

// A field with the default value is left out, so that an older daemon understands the message.
TEST(ClientSideTest, PrefetchesAndWaitsSayWhatIsNotTheDefault) {
  const v1::PrefetchPrefixRequest plain = OperationToProto(PrefetchPrefix{}).prefetch_prefix();
  EXPECT_EQ(plain.target(), v1::PREFETCH_TARGET_UNSPECIFIED);
  EXPECT_FALSE(plain.has_deadline_ms());
  const v1::PrefetchPrefixRequest timed =
      OperationToProto(
          PrefetchPrefix{.target = PrefetchTarget::kMemory, .deadline = absl::Microseconds(1500)})
          .prefetch_prefix();
  EXPECT_EQ(timed.target(), v1::PREFETCH_TARGET_MEMORY);
  EXPECT_EQ(timed.deadline_ms(), 2u);
  EXPECT_TRUE(OperationToProto(PrefetchPrefix{.deadline = absl::ZeroDuration()})
                  .prefetch_prefix()
                  .has_deadline_ms());
  const auto lane_of = [](Lane lane) {
    return OperationToProto(WaitForTicket{Ticket(6), lane}).wait_for_ticket().lane();
  };
  EXPECT_EQ(lane_of(Lane::kMemory), v1::LANE_MEMORY);
  EXPECT_EQ(lane_of(Lane::kFetch), v1::LANE_FETCH);
  EXPECT_EQ(lane_of(Lane::kBackup), v1::LANE_BACKUP);
}

TEST(ClientSideTest, ABatchKeepsItsOrderAndSteps) {
  std::vector<Operation> operations;
  for (auto& [operation, text] : AllOperations()) operations.push_back(operation);
  const v1::Batch batch = BatchToProto(operations, {.step = 5, .completed_step = 4});
  EXPECT_EQ(batch.step(), 5u);
  EXPECT_EQ(batch.completed_step(), 4u);
  ASSERT_EQ(batch.operations_size(), static_cast<int>(operations.size()));
  for (size_t i = 0; i < operations.size(); ++i) {
    EXPECT_EQ(batch.operations(i).operation_case(),
              OperationToProto(operations[i]).operation_case());
  }
}

TEST(ClientSideTest, BlockResultsKeepHandles) {
  const std::string block = "blocks: " + RowsText({4, 2, 9});
  EXPECT_THAT(ResultOf<AllocatedBlocks>("allocate_blocks {" + block + "}").blocks,
              ElementsAre(kHandle));
  const auto matched = ResultOf<MatchedPrefix>("match_prefix { matched_tokens: 6 " + block + "}");
  EXPECT_EQ(matched.matched_tokens, 6u);
  EXPECT_THAT(matched.blocks, ElementsAre(kHandle));
  ResultOf<FreedBlocks>("free_blocks {}");
  ResultOf<FilledBlocks>("fill_blocks {}");
  const auto described = ResultOf<DescribedBlocks>(
      "describe_blocks { blocks { holders: 3 filled_tokens: 7 finalized: true }"
      " blocks { cached: true } }");
  EXPECT_THAT(described.blocks,
              ElementsAre(BlockMetadata{.holders = 3, .filled_tokens = 7, .finalized = true},
                          BlockMetadata{.cached = true}));
}

TEST(ClientSideTest, BlocksThatAreNotWholeRowsAreAnError) {
  for (const std::string text :
       {"allocate_blocks { blocks: 'x' }", "match_prefix { blocks: 'x' }",
        "add_sequence { tables { blocks: 'x' } }", "append_tokens { added { blocks: 'x' } }",
        "reserve_tokens { added { blocks: 'x' } }", "describe_sequence { tables { blocks: 'x' } }",
        "fork_sequence { tables { blocks: 'x' } }", "truncate_sequence { tables { blocks: 'x' } }",
        "append_step { grown: 'x' }", "append_step { blocks: 'x' }"}) {
    const auto result = OperationResultFromProto(Parse<v1::OperationResult>(text));
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal) << text;
  }
}

TEST(ClientSideTest, SequenceResultsKeepTables) {
  const std::string table = "{ window_size: 0 first_block: 6 blocks: " + RowsText({4, 2, 9}) + " }";
  const auto check = [](const std::vector<BlockTable>& tables) {
    ASSERT_EQ(tables.size(), 1u);
    EXPECT_EQ(tables[0].window, kFullAttention);
    EXPECT_EQ(tables[0].first_block, 6u);
    EXPECT_THAT(tables[0].blocks, ElementsAre(kHandle));
  };

  const auto added =
      ResultOf<AddedSequence>("add_sequence { matched_tokens: 3 tables " + table + "}");
  EXPECT_EQ(added.matched_tokens, 3u);
  check(added.tables);
  check(ResultOf<ReservedTokens>("reserve_tokens { added " + table + "}").added);
  const auto appended =
      ResultOf<AppendedTokens>("append_tokens { token_count: 8 added " + table + "}");
  EXPECT_EQ(appended.token_count, 8u);
  check(appended.added);
  EXPECT_EQ(ResultOf<CommittedTokens>("commit_tokens { token_count: 8 }").token_count, 8u);
  ResultOf<FreedSequence>("free_sequence {}");

  const auto described = ResultOf<DescribedSequence>(
      "describe_sequence { token_count: 8 computed_tokens: 5 reserved_tokens: 32 losses: 1 "
      "ready_ticket: 6 tables " +
      table + "}");
  EXPECT_EQ(described.token_count, 8u);
  EXPECT_EQ(described.computed_tokens, 5u);
  EXPECT_EQ(described.reserved_tokens, 32u);
  EXPECT_EQ(described.losses, 1u);
  EXPECT_EQ(described.ready, Ticket{6});
  check(described.tables);
  const auto forked = ResultOf<ForkedSequence>(
      "fork_sequence { token_count: 8 computed_tokens: 5 losses: 2 ready_ticket: 7 tables " +
      table + "}");
  EXPECT_EQ(forked.token_count, 8u);
  EXPECT_EQ(forked.computed_tokens, 5u);
  EXPECT_EQ(forked.losses, 2u);
  EXPECT_EQ(forked.ready, Ticket{7});
  check(forked.tables);
}

TEST(ClientSideTest, ResultsTellWhatLiesOnDisk) {
  const auto added = ResultOf<AddedSequence>(
      "add_sequence { matched_tokens: 8 matched_lower_tokens: 4 matched_below_tokens: 24"
      " ready_ticket: 3 }");
  EXPECT_EQ(added.matched_lower_tokens, 4u);
  EXPECT_EQ(added.matched_below_tokens, 24u);
  EXPECT_EQ(added.ready, Ticket(3));
  const auto matched = ResultOf<MatchedPrefix>(
      "match_prefix { matched_tokens: 8 cached_tokens: 33 tokens_by_tier: [8, 0, 25] }");
  EXPECT_EQ(matched.cached_tokens, 33u);
  EXPECT_THAT(matched.tokens_by_tier, ElementsAre(8u, 0u, 25u));
  const auto prefetched = ResultOf<PrefetchedPrefix>(
      "prefetch_prefix { matched_tokens: 33 blocks: 2 ready_ticket: 4 fetched_blocks: 5"
      " fetch_ticket: 9 }");
  EXPECT_EQ(prefetched.matched_tokens, 33u);
  EXPECT_EQ(prefetched.blocks, 2u);
  EXPECT_EQ(prefetched.ready, Ticket(4));
  EXPECT_EQ(prefetched.fetched_blocks, 5u);
  EXPECT_EQ(prefetched.fetch, Ticket(9));
  const auto invalidated =
      ResultOf<InvalidatedPrefix>("invalidate_prefix { removed_blocks: 3 durable_ticket: 7 }");
  EXPECT_EQ(invalidated.removed_blocks, 3u);
  EXPECT_EQ(invalidated.durable, Ticket(7));
}

TEST(ClientSideTest, AnEmptyTableEntryStaysEmpty) {
  const auto added = ResultOf<AddedSequence>(
      "add_sequence { tables { blocks: " + RowsText({4294967295, 0, 4294967295}) + " } }");
  EXPECT_EQ(added.tables.at(0).blocks.at(0), BlockHandle());
}

TEST(ClientSideTest, PinsKeepTheirEnd) {
  const auto listed = ResultOf<ListedPins>(
      "list_pins { pins { pin_id: 3 client_name: 'a' namespace { cache_salt: 's' }"
      " pinned_tokens: 8 blocks: 2 expire_time { seconds: 1 nanos: 5 } } pins { pin_id: 4 }"
      " pinned_blocks: 2 budget_blocks: 9 }");
  ASSERT_EQ(listed.pins.size(), 2u);
  EXPECT_EQ(listed.pins[0].pin, PinId(3));
  EXPECT_EQ(listed.pins[0].client_name, "a");
  EXPECT_EQ(listed.pins[0].name_space, kSalted);
  EXPECT_EQ(listed.pins[0].expires, absl::FromUnixNanos(1'000'000'005));
  EXPECT_EQ(listed.pins[1].expires, absl::InfiniteFuture());
  EXPECT_EQ(listed.pinned_blocks, 2u);
  EXPECT_EQ(listed.budget_blocks, 9u);
}

TEST(ClientSideTest, ABatchTellsItsTicketsAndWhoWasShortened) {
  const BatchResult batch = BatchResultFromProto(
      Parse<v1::BatchResult>("revision: 3 completed_ticket: 7"
                             " completed_fetch_ticket: 8 completed_backup_ticket: 9"
                             " shortened { sequence_id: 5 computed_tokens: 16 losses: 2 }"
                             " shortened { sequence_id: 6 losses: 1 must_be_freed: true }"));
  EXPECT_EQ(batch.revision, Revision(3));
  EXPECT_EQ(batch.completed, Ticket(7));
  EXPECT_EQ(batch.completed_fetch, Ticket(8));
  EXPECT_EQ(batch.completed_backup, Ticket(9));
  EXPECT_THAT(batch.shortened, ElementsAre(ShortenedSequence{SequenceId(5), 16, 2, false},
                                           ShortenedSequence{SequenceId(6), 0, 1, true}));
}

// 2 layers, K and V, 1 head, 4 tokens of 8 halves.
std::string PoolText(const std::string& slot_stride) {
  return "describe_pools { pools { window_size: 0 pool_index: 1 tier: TIER_PRIMARY"
         " dtype: DTYPE_FLOAT16 layers: [0, 2] num_slots: 10 kv_factor: 2 num_kv_heads: 1"
         " tokens_per_block: 4 head_dim: 8 token_stride_bytes: 16 head_stride_bytes: 64"
         " kv_stride_bytes: 64 layer_stride_bytes: 128 slot_stride_bytes: " +
         slot_stride +
         " segments { shm_name: '/pagoda-x' offset_bytes: 64 size_bytes: 2560 first_slot: 0"
         " num_slots: 10 pages: MEMORY_PAGES_2MIB } } }";
}

TEST(ClientSideTest, PoolMappingsKeepEverything) {
  const auto described = ResultOf<DescribedPools>(PoolText("256"));
  ASSERT_EQ(described.pools.size(), 1u);
  const PoolMapping& pool = described.pools[0];
  EXPECT_EQ(pool.window, kFullAttention);
  EXPECT_EQ(pool.pool_index, 1u);
  EXPECT_EQ(pool.tier, kPrimaryTier);
  EXPECT_EQ(pool.layout.dtype, DType::kFloat16);
  EXPECT_THAT(pool.layout.layers, ElementsAre(0u, 2u));
  EXPECT_EQ(pool.layout.slot_stride_bytes(), 256u);
  EXPECT_EQ(pool.num_slots, 10u);
  ASSERT_EQ(pool.segments.size(), 1u);
  EXPECT_EQ(pool.segments[0].shm_name, "/pagoda-x");
  EXPECT_EQ(pool.segments[0].offset_bytes, 64u);
  EXPECT_EQ(pool.segments[0].size_bytes, 2560u);
  EXPECT_EQ(pool.segments[0].pages, MemoryPages::k2MiB);
}

TEST(ClientSideTest, APoolLaidOutOtherwiseIsRefused) {
  const auto result = OperationResultFromProto(Parse<v1::OperationResult>(PoolText("512")));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
}

// 2 layers of 10 bytes.
std::string OpaqueText(const std::string& more) {
  return "describe_pools { pools { tier: TIER_PRIMARY content: POOL_CONTENT_OPAQUE layers: [0, 1]"
         " num_slots: 3 tokens_per_block: 4 kv_stride_bytes: 10 layer_stride_bytes: 10"
         " slot_stride_bytes: 20 " +
         more + " } }";
}

TEST(ClientSideTest, AnOpaquePoolIsBytes) {
  const auto described = ResultOf<DescribedPools>(OpaqueText("dtype: DTYPE_UINT8 kv_factor: 1"));
  ASSERT_EQ(described.pools.size(), 1u);
  EXPECT_EQ(described.pools[0].layout.content, PoolContent::kOpaque);
  EXPECT_EQ(described.pools[0].layout.bytes_per_block, 10u);
  for (const char* more : {"dtype: DTYPE_FLOAT16 kv_factor: 1", "dtype: DTYPE_UINT8 kv_factor: 2",
                           "dtype: DTYPE_UINT8 kv_factor: 1 num_kv_heads: 2"}) {
    const auto result = OperationResultFromProto(Parse<v1::OperationResult>(OpaqueText(more)));
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal) << more;
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("[layer][bytes] of uint8"));
  }
}

TEST(ClientSideTest, AnUnknownContentIsRefused) {
  v1::OperationResult proto = Parse<v1::OperationResult>(PoolText("256"));
  proto.mutable_describe_pools()->mutable_pools(0)->set_content(static_cast<v1::PoolContent>(9));
  EXPECT_THAT(std::string(OperationResultFromProto(proto).status().message()),
              HasSubstr("unknown content of a pool: 9"));
}

TEST(ClientSideTest, AnUnknownTierIsRefused) {
  const auto result = OperationResultFromProto(
      Parse<v1::OperationResult>("describe_pools { pools { dtype: DTYPE_FLOAT32 } }"));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
}

TEST(ClientSideTest, AnEmptyResultAndAnOkErrorAreFaults) {
  EXPECT_EQ(OperationResultFromProto({}).status().code(), absl::StatusCode::kInternal);
  v1::OperationResult ok_error;
  ok_error.mutable_error()->set_code(0);
  EXPECT_EQ(OperationResultFromProto(ok_error).status().code(), absl::StatusCode::kInternal);
}

TEST(ClientSideTest, CacheInfoKeepsItsWindows) {
  const CacheInfo info = CacheInfoFromProto(
      Parse<v1::CacheInfo>("name: 'default' model_fingerprint: 'm' tokens_per_block: 32"
                           " windows { window_size: 128 blocks: 5 }"
                           " windows { window_size: 0 blocks: [7, 2] }"));
  EXPECT_EQ(info.name, "default");
  EXPECT_EQ(info.model_fingerprint, "m");
  EXPECT_EQ(info.tokens_per_block, 32u);
  ASSERT_EQ(info.windows.size(), 2u);
  EXPECT_EQ(info.windows[0].window, WindowSize(128));
  EXPECT_EQ(info.windows[1].window, kFullAttention);
  EXPECT_EQ(info.windows[1].blocks_in(kPrimaryTier), 7u);
  EXPECT_EQ(info.windows[1].blocks_in(Tier(1)), 2u);
  EXPECT_EQ(info.TierName(Tier(1)), "secondary") << "there is no list of tiers";
}

TEST(ClientSideTest, CacheInfoKeepsItsTiers) {
  const CacheInfo info = CacheInfoFromProto(
      Parse<v1::CacheInfo>("windows { blocks: 7 blocks: 2 blocks: 9 }"
                           " tiers { tier: TIER_PRIMARY name: 'hbm' medium: MEDIUM_GPU }"
                           " tiers { tier: TIER_SECOND name: 'dram' medium: MEDIUM_HOST }"
                           " tiers { tier: TIER_THIRD name: 'nvme' medium: MEDIUM_DISK }"));
  ASSERT_EQ(info.tiers.size(), 3u);
  EXPECT_EQ(info.TierName(Tier{2}), "nvme");
  EXPECT_EQ(info.tiers[0].medium, Medium::kGpu);
  EXPECT_EQ(info.tiers[1].medium, Medium::kHost);
  EXPECT_EQ(info.tiers[2].medium, Medium::kDisk);
  EXPECT_THAT(info.windows[0].blocks, ElementsAre(7, 2, 9));
}

}  // namespace
}  // namespace pagoda

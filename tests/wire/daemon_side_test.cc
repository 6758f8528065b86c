#include "wire/vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <variant>

#include "base/error.h"
#include "manager/sequences/operation_checks.h"
#include "manager/words/retention.h"
#include "tests/wire/event_messages.h"
#include "tests/wire/result_messages.h"
#include "wire/lists.h"
#include "wire/operations.h"
#include "wire/results.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;

TEST(DaemonSideTest, ZeroOnTheWireIsFullAttention) {
  EXPECT_EQ(WindowFromProto(0), kFullAttention);
  EXPECT_EQ(WindowToProto(kFullAttention), 0u);
  EXPECT_EQ(WindowFromProto(128), WindowSize(128));
  EXPECT_EQ(WindowToProto(WindowSize(128)), 128u);
}

TEST(DaemonSideTest, MoreExtraIdsThanTokensAreNotCopied) {
  v1::Operation proto;
  proto.mutable_match_prefix()->add_tokens(1);
  proto.mutable_match_prefix()->add_extra_token_ids(0);
  EXPECT_TRUE(OperationFromProto(proto).ok());
  proto.mutable_match_prefix()->add_extra_token_ids(0);
  const absl::Status refusal = OperationFromProto(proto).status();
  EXPECT_EQ(ReasonOf(refusal), Reason::kInvalidArgument);
  EXPECT_EQ(refusal.message(), "2 extra ids for 1 token; there is one for each token, or none");
}

// Handles and references are rows of a field: see BlockHandle in types.proto.
TEST(DaemonSideTest, BlocksThatAreNotWholeRowsAreRefused) {
  v1::Operation proto;
  const auto refusal = [&] { return OperationFromProto(proto).status(); };
  for (const size_t bytes : {1, 7, 9, 15}) {
    proto.mutable_free_blocks()->set_blocks(std::string(bytes, 'x'));
    EXPECT_EQ(ReasonOf(refusal()), Reason::kInvalidArgument) << bytes;
    proto.mutable_describe_blocks()->set_blocks(std::string(bytes, 'x'));
    EXPECT_EQ(ReasonOf(refusal()), Reason::kInvalidArgument) << bytes;
    proto.mutable_fill_blocks()->set_blocks(std::string(bytes, '\0'));
    EXPECT_EQ(ReasonOf(refusal()), Reason::kInvalidArgument) << bytes;
  }
  EXPECT_EQ(refusal().message(), "blocks has 15 bytes; its rows have 16");
  proto.mutable_fill_blocks()->set_blocks(std::string(12, '\0') + std::string("\2\0\0\0", 4));
  EXPECT_EQ(refusal().message(), "blocks[0] has a finalize of 2; it is 0 or 1");
}

TEST(DaemonSideTest, ATenantsSequencesAndTheirLimitsAreTold) {
  const TenantUsage usage{
      .sequences = 3, .max_sequences = 40, .sequence_bytes = 5000, .max_sequence_bytes = 6000};
  v1::TenantInfo told;
  TenantUsageToProto(usage, {.name = "red"}, {.tiers = {{.name = "hbm"}}}, &told);
  EXPECT_EQ(told.sequences(), 3u);
  EXPECT_EQ(told.max_sequences(), 40u);
  EXPECT_EQ(told.sequence_bytes(), 5000u);
  EXPECT_EQ(told.max_sequence_bytes(), 6000u);
}

TEST(DaemonSideTest, AnOperationThatAsksForNothingIsRefused) {
  EXPECT_EQ(ReasonOf(OperationFromProto(v1::Operation()).status()), Reason::kInvalidArgument);
}

// "" if the operation is valid; otherwise the message of the refusal.
std::string Refusal(const v1::Operation& operation) {
  const absl::Status status = OperationFromProto(operation).status();
  EXPECT_EQ(ReasonOf(status), status.ok() ? Reason::kNone : Reason::kInvalidArgument);
  return std::string(status.message());
}

TEST(DaemonSideTest, ADigestHasThirtyTwoBytes) {
  for (const size_t bytes : {0, 31, 33, 64}) {
    v1::Operation add;
    add.mutable_add_sequence()->add_multimodal_items()->set_digest(std::string(32, 'd'));
    EXPECT_EQ(Refusal(add), "");
    add.mutable_add_sequence()->add_multimodal_items()->set_digest(std::string(bytes, 'd'));
    EXPECT_THAT(Refusal(add), HasSubstr("multimodal_items[1].digest has " + std::to_string(bytes)));
    v1::Operation match;
    match.mutable_match_prefix()->add_multimodal_items()->set_digest(std::string(bytes, 'd'));
    EXPECT_THAT(Refusal(match), HasSubstr("multimodal_items[0].digest"));
  }
}

TEST(DaemonSideTest, ADigestIsFourLittleEndianWords) {
  v1::Operation match;
  std::string digest(32, '\0');
  digest[0] = 1;
  digest[8] = 2;
  digest[31] = '\x80';
  match.mutable_match_prefix()->add_multimodal_items()->set_digest(digest);
  const auto operation = std::get<MatchPrefix>(*OperationFromProto(match));
  EXPECT_EQ(operation.multimodal_items.at(0).digest, (ItemDigest{1, 2, 0, uint64_t{0x80} << 56}));
}

TEST(DaemonSideTest, PrioritiesAreAtMostOneHundred) {
  const auto with_priority = [](uint32_t priority) {
    v1::Operation add;
    add.mutable_add_sequence()->add_retention()->set_priority(priority);
    return add;
  };
  EXPECT_EQ(Refusal(with_priority(0)), "");
  EXPECT_EQ(Refusal(with_priority(100)), "");
  // 256 would be 0 in eight bits.
  for (const uint32_t priority : {101u, 255u, 256u, 256u + 35u, 4294967295u}) {
    const std::string named = "priority is " + std::to_string(priority);
    EXPECT_THAT(Refusal(with_priority(priority)), HasSubstr("retention[0]." + named));
    v1::Operation generated;
    generated.mutable_add_sequence()->set_generated_priority(priority);
    EXPECT_THAT(Refusal(generated), HasSubstr("generated_" + named));
    v1::Operation set;
    set.mutable_set_retention()->add_retention();
    set.mutable_set_retention()->add_retention()->set_priority(priority);
    EXPECT_THAT(Refusal(set), HasSubstr("retention[1]." + named));
  }
}

TEST(DaemonSideTest, DurationsAreMillisecondsThatSixtyThreeBitsHold) {
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  const auto pin = [](uint64_t lease_ms) {
    v1::Operation operation;
    operation.mutable_pin_prefix()->set_lease_ms(lease_ms);
    return operation;
  };
  EXPECT_EQ(std::get<PinPrefix>(*OperationFromProto(pin(1500))).lease, absl::Milliseconds(1500));
  // The core refuses zero.
  EXPECT_EQ(std::get<PinPrefix>(*OperationFromProto(pin(0))).lease, absl::ZeroDuration());
  EXPECT_EQ(Refusal(pin(kMost)), "");
  EXPECT_THAT(Refusal(pin(kMost + 1)), HasSubstr("lease_ms is 9223372036854775808"));
  v1::Operation add;
  v1::RetentionRange* range = add.mutable_add_sequence()->add_retention();
  EXPECT_EQ(std::get<AddSequence>(*OperationFromProto(add)).retention.ranges[0].retention.duration,
            absl::InfiniteDuration());
  range->set_duration_ms(kMost + 1);
  EXPECT_THAT(Refusal(add), HasSubstr("retention[0].duration_ms"));
  range->set_duration_ms(7);
  EXPECT_EQ(std::get<AddSequence>(*OperationFromProto(add)).retention.ranges[0].retention.duration,
            absl::Milliseconds(7));
}

TEST(DaemonSideTest, ARequestHasAtMostSoManyRetentionRanges) {
  v1::Operation add;
  v1::Operation set;
  for (size_t i = 0; i < kMaxRetentionRanges; ++i) {
    add.mutable_add_sequence()->add_retention();
    set.mutable_set_retention()->add_retention();
  }
  EXPECT_EQ(Refusal(add), "");
  EXPECT_EQ(Refusal(set), "");
  // Refused because of their number, before any of them is checked.
  add.mutable_add_sequence()->add_retention();
  set.mutable_set_retention()->add_retention();
  set.mutable_set_retention()->mutable_retention(0)->set_priority(kMaxPriority + 1);
  EXPECT_EQ(Refusal(add), "65537 retention ranges; at most 65536 are allowed");
  EXPECT_EQ(Refusal(set), "65537 retention ranges; at most 65536 are allowed");
}

TEST(DaemonSideTest, AGeneratedDurationNeedsAPriority) {
  v1::Operation add;
  add.mutable_add_sequence();
  EXPECT_FALSE(std::get<AddSequence>(*OperationFromProto(add)).retention.generated.has_value());
  add.mutable_add_sequence()->set_generated_duration_ms(5);
  EXPECT_THAT(Refusal(add), HasSubstr("generated_priority"));
  add.mutable_add_sequence()->set_generated_priority(0);
  EXPECT_EQ(std::get<AddSequence>(*OperationFromProto(add)).retention.generated,
            (BlockRetention{.priority = Priority(0), .duration = absl::Milliseconds(5)}));
}

TEST(DaemonSideTest, ARangeWithoutEndAndAPinWithoutLeaseHaveNone) {
  v1::Operation set;
  set.mutable_set_retention()->add_retention()->set_token_end(0);
  set.mutable_set_retention()->add_retention();
  const auto ranges = std::get<SetRetention>(*OperationFromProto(set)).retention.ranges;
  EXPECT_EQ(ranges.at(0).token_end, 0u);
  EXPECT_EQ(ranges.at(1).token_end, std::nullopt);
  v1::Operation pin;
  pin.mutable_pin_prefix();
  EXPECT_EQ(std::get<PinPrefix>(*OperationFromProto(pin)).lease, absl::InfiniteDuration());
}

TEST(DaemonSideTest, APrefetchKeepsItsTargetAndItsDeadline) {
  v1::Operation proto;
  v1::PrefetchPrefixRequest* request = proto.mutable_prefetch_prefix();
  const auto prefetch = [&proto] { return std::get<PrefetchPrefix>(*OperationFromProto(proto)); };
  EXPECT_EQ(prefetch().target, PrefetchTarget::kPrimary);
  EXPECT_EQ(prefetch().deadline, absl::InfiniteDuration());
  request->set_target(v1::PREFETCH_TARGET_MEMORY);
  request->set_deadline_ms(250);
  EXPECT_EQ(prefetch().target, PrefetchTarget::kMemory);
  EXPECT_EQ(prefetch().deadline, absl::Milliseconds(250));
  request->set_target(v1::PREFETCH_TARGET_PRIMARY);
  request->set_deadline_ms(0);
  EXPECT_EQ(prefetch().target, PrefetchTarget::kPrimary);
  EXPECT_EQ(prefetch().deadline, absl::ZeroDuration());
  request->set_deadline_ms(uint64_t{1} << 63);
  EXPECT_THAT(Refusal(proto), HasSubstr("deadline_ms is 9223372036854775808"));
}

TEST(DaemonSideTest, AWaitKeepsItsLane) {
  v1::Operation proto;
  proto.mutable_wait_for_ticket()->set_ticket(6);
  const auto wait = [&proto] { return std::get<WaitForTicket>(*OperationFromProto(proto)); };
  EXPECT_EQ(wait().ticket, Ticket(6));
  EXPECT_EQ(wait().lane, Lane::kMemory);
  proto.mutable_wait_for_ticket()->set_lane(v1::LANE_FETCH);
  EXPECT_EQ(wait().lane, Lane::kFetch);
  proto.mutable_wait_for_ticket()->set_lane(v1::LANE_BACKUP);
  EXPECT_EQ(wait().lane, Lane::kBackup);
}

// From a later client: the daemon must not wait for another lane's ticket instead.
TEST(DaemonSideTest, ATargetOrALaneThatIsNotKnownIsRefused) {
  for (const int value : {-1, 3, 99}) {
    v1::Operation prefetch;
    prefetch.mutable_prefetch_prefix()->set_target(static_cast<v1::PrefetchTarget>(value));
    EXPECT_THAT(Refusal(prefetch), HasSubstr("no prefetch target " + std::to_string(value)));
    v1::Operation wait;
    wait.mutable_wait_for_ticket()->set_lane(static_cast<v1::Lane>(value));
    EXPECT_THAT(Refusal(wait), HasSubstr("no lane " + std::to_string(value)));
  }
}

TEST(DaemonSideTest, APinWithoutEndHasNoExpireTime) {
  ListedPins pins{.pins = {{.pin = PinId(1), .expires = absl::InfiniteFuture()},
                           {.pin = PinId(2), .expires = absl::FromUnixMillis(1500)}}};
  v1::OperationResult result;
  OperationResultToProto(OperationResult(pins), &result);
  EXPECT_FALSE(result.list_pins().pins(0).has_expire_time());
  EXPECT_EQ(result.list_pins().pins(1).expire_time().seconds(), 1);
  EXPECT_EQ(result.list_pins().pins(1).expire_time().nanos(), 500'000'000);
}

// A batch that waits is answered in parts.
TEST(DaemonSideTest, ABatchOfSeveralPartsHasTheStateOfItsLast) {
  BatchResult part{.revision = Revision(3),
                   .completed = Ticket(1),
                   .completed_fetch = Ticket(2),
                   .completed_backup = Ticket(3),
                   .shortened = {{.sequence = SequenceId(7), .computed_tokens = 4, .losses = 1},
                                 {.sequence = SequenceId(8), .computed_tokens = 8, .losses = 1}}};
  v1::BatchResult proto;
  BatchStateToProto(part, &proto);
  ASSERT_EQ(proto.shortened_size(), 2);
  EXPECT_EQ(proto.shortened(0).sequence_id(), 7u);
  EXPECT_EQ(proto.shortened(0).computed_tokens(), 4u);
  EXPECT_EQ(proto.shortened(0).losses(), 1u);
  EXPECT_FALSE(proto.shortened(0).must_be_freed());
  part = {.revision = Revision(5),
          .completed = Ticket(2),
          .completed_fetch = Ticket(4),
          .completed_backup = Ticket(6),
          .shortened = {{.sequence = SequenceId(8), .losses = 3, .must_be_freed = true}}};
  BatchStateToProto(part, &proto);
  EXPECT_EQ(proto.revision(), 5u);
  EXPECT_EQ(proto.completed_ticket(), 2u);
  EXPECT_EQ(proto.completed_fetch_ticket(), 4u);
  EXPECT_EQ(proto.completed_backup_ticket(), 6u);
  ASSERT_EQ(proto.shortened_size(), 1);
  EXPECT_EQ(proto.shortened(0).sequence_id(), 8u);
  EXPECT_EQ(proto.shortened(0).losses(), 3u);
  EXPECT_TRUE(proto.shortened(0).must_be_freed());
}

TEST(DaemonSideTest, AFailedOperationHasOnlyItsError) {
  v1::OperationResult result;
  OperationResultToProto(MakeError(Reason::kUnknownSequence, "no sequence 4"), &result);
  EXPECT_EQ(result.result_case(), v1::OperationResult::RESULT_NOT_SET);
  EXPECT_EQ(result.error().code(), static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_EQ(result.error().message(), "no sequence 4");
}

TEST(DaemonSideTest, TimesKeepTheirNanosecondsAlsoBefore1970) {
  const auto after = TimeToProto(absl::UnixEpoch() + absl::Nanoseconds(1'500'000'007));
  EXPECT_EQ(after.seconds(), 1);
  EXPECT_EQ(after.nanos(), 500'000'007);
  const auto before = TimeToProto(absl::UnixEpoch() - absl::Nanoseconds(1));
  EXPECT_EQ(before.seconds(), -1);
  EXPECT_EQ(before.nanos(), 999'999'999);
  EXPECT_EQ(DurationToProto(absl::Milliseconds(2500)).seconds(), 2);
  EXPECT_EQ(DurationToProto(absl::Milliseconds(2500)).nanos(), 500'000'000);
}

TEST(DaemonSideTest, AStoredEventGivesEachBlockItsTokens) {
  Event event;
  event.revision = Revision(7);
  event.what = StoredEvent{.parent_hash = BlockHash(11),
                           .parent = BlockId(2),
                           .name_space = NamespaceKey{.cache_salt = "s"},
                           .blocks = {{.id = BlockId(3), .hash = BlockHash(12), .token_count = 2},
                                      {.id = BlockId(4), .hash = BlockHash(13), .token_count = 1}},
                           .tokens = {5, 6, 7}};
  const v1::Event proto = DecodedEvent(event);
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

TEST(DaemonSideTest, ARootBlockHasNoParent) {
  Event event;
  event.what = StoredEvent{.blocks = {{.id = BlockId(0)}}};
  const v1::Event proto = DecodedEvent(event);
  EXPECT_FALSE(proto.stored().has_parent_hash());
  EXPECT_FALSE(proto.stored().has_parent_block_id());
}

TEST(DaemonSideTest, ARemovalKeepsReasonScopeIdsAndHashes) {
  Event event;
  event.window = WindowSize(128);
  event.what = RemovedEvent{.reason = RemovalReason::kEvicted,
                            .blocks = {BlockId(1), BlockId(2)},
                            .hashes = {BlockHash(10), BlockHash(20)}};
  v1::Event proto = DecodedEvent(event);
  EXPECT_EQ(proto.window_size(), 128u);
  EXPECT_EQ(proto.removed().reason(), v1::REMOVAL_REASON_EVICTED);
  EXPECT_EQ(proto.removed().scope(), v1::REMOVAL_SCOPE_UNSPECIFIED);
  EXPECT_EQ(proto.removed().block_ids(1), 2u);
  EXPECT_EQ(proto.removed().block_hashes(1), 20u);

  event.what =
      RemovedEvent{.reason = RemovalReason::kCleared, .scope = RemovedEvent::Scope::kWindow};
  proto = DecodedEvent(event);
  EXPECT_EQ(proto.removed().reason(), v1::REMOVAL_REASON_CLEARED);
  EXPECT_EQ(proto.removed().scope(), v1::REMOVAL_SCOPE_WINDOW);

  event.what =
      RemovedEvent{.reason = RemovalReason::kReleased, .scope = RemovedEvent::Scope::kPools};
  proto = DecodedEvent(event);
  EXPECT_EQ(proto.removed().reason(), v1::REMOVAL_REASON_RELEASED);
  EXPECT_EQ(proto.removed().scope(), v1::REMOVAL_SCOPE_POOLS);
}

}  // namespace
}  // namespace pagoda

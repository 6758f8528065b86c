#include "server/served_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "pagoda/v1/cache.pb.h"
#include "pagoda/v1/engine.pb.h"
#include "pagoda/v1/events.pb.h"
#include "pools/error.h"

namespace pagoda::server {
namespace {

using ::testing::HasSubstr;

// The message of a refusal; "" where the message is served.
std::string Refusal(const google::protobuf::Message& message) {
  const absl::Status status = CheckServed(message);
  if (status.ok()) return "";
  EXPECT_EQ(ReasonOf(status), Reason::kFieldNotServed);
  return std::string(status.message());
}

TEST(ServedFieldsTest, AMessageOfServedFieldsPasses) {
  v1::Operation operation;
  operation.mutable_add_sequence()->set_sequence_id(1);
  operation.mutable_add_sequence()->add_tokens(7);
  operation.mutable_add_sequence()->mutable_namespace_()->set_cache_salt("salt");
  operation.mutable_add_sequence()->mutable_namespace_()->set_tenant("t");
  operation.mutable_add_sequence()->add_extra_token_ids(3);
  operation.mutable_add_sequence()->add_multimodal_items()->set_item_offset(1);
  operation.mutable_add_sequence()->add_retention()->set_priority(80);
  operation.mutable_add_sequence()->set_generated_priority(0);
  EXPECT_EQ(Refusal(operation), "");
  v1::ExecuteRequest execute;
  execute.mutable_batch()->set_step(3);
  execute.mutable_batch()->set_completed_step(2);
  EXPECT_EQ(Refusal(execute), "");
}

TEST(ServedFieldsTest, AReservedFieldIsRefusedByItsPath) {
  v1::WatchRequest watch;
  watch.set_tenant("a");
  EXPECT_THAT(Refusal(watch), HasSubstr("tenant"));
  v1::Operation operation;
  operation.mutable_add_sequence()->set_tenant("a");
  EXPECT_THAT(Refusal(operation), HasSubstr("add_sequence.tenant"));
}

TEST(ServedFieldsTest, EveryKindOfFieldCounts) {
  v1::Operation number;
  number.mutable_match_prefix();
  number.set_operation_id(1);
  EXPECT_THAT(Refusal(number), HasSubstr("operation_id"));
  v1::Operation choice;
  choice.mutable_allocate_blocks()->set_tier(v1::TIER_SECONDARY);
  EXPECT_THAT(Refusal(choice), HasSubstr("allocate_blocks.tier"));
  v1::WatchRequest repeated_number;
  repeated_number.add_window_sizes(0);
  EXPECT_THAT(Refusal(repeated_number), HasSubstr("window_sizes"));
  v1::GenerateRequest optional_zero;
  optional_zero.set_temperature(0);
  EXPECT_THAT(Refusal(optional_zero), HasSubstr("temperature"));
  v1::WatchRequest flag;
  flag.set_snapshot(true);
  EXPECT_THAT(Refusal(flag), HasSubstr("snapshot"));
}

TEST(ServedFieldsTest, TheOperationsOfABatchAreLeftToTheirOwnCheck) {
  v1::ExecuteRequest execute;
  execute.mutable_batch()->add_operations()->mutable_add_sequence()->set_tenant("a");
  EXPECT_EQ(Refusal(execute), "");
  EXPECT_THAT(Refusal(execute.batch().operations(0)), HasSubstr("tenant"));
}

TEST(ServedFieldsTest, AnUnknownFieldIsRefusedByItsNumberAtAnyDepth) {
  v1::Operation operation;
  v1::BlockRef* block = operation.mutable_free_blocks()->add_blocks();
  block = operation.mutable_free_blocks()->add_blocks();
  block->GetReflection()->MutableUnknownFields(block)->AddVarint(77, 1);
  EXPECT_THAT(Refusal(operation), HasSubstr("free_blocks.blocks[1].unknown field number 77"));
}

}  // namespace
}  // namespace pagoda::server

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
  EXPECT_EQ(Refusal(operation), "");
  EXPECT_EQ(Refusal(v1::ExecuteRequest()), "");
}

TEST(ServedFieldsTest, AReservedFieldIsRefusedByItsPath) {
  v1::ExecuteRequest execute;
  execute.mutable_batch()->set_step(3);
  EXPECT_THAT(Refusal(execute), HasSubstr("batch.step"));
  v1::Operation operation;
  operation.mutable_add_sequence()->set_tenant("a");
  EXPECT_THAT(Refusal(operation), HasSubstr("add_sequence.tenant"));
}

TEST(ServedFieldsTest, EveryKindOfFieldCounts) {
  v1::Operation oneof;
  oneof.mutable_fork_sequence();
  EXPECT_THAT(Refusal(oneof), HasSubstr("fork_sequence"));
  v1::Operation repeated_number;
  repeated_number.mutable_add_sequence()->add_extra_token_ids(0);
  EXPECT_THAT(Refusal(repeated_number), HasSubstr("extra_token_ids"));
  v1::Operation repeated_message;
  repeated_message.mutable_add_sequence()->add_retention();
  EXPECT_THAT(Refusal(repeated_message), HasSubstr("retention"));
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

#include "wire/served_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "pagoda/v1/cache.pb.h"
#include "pagoda/v1/engine.pb.h"
#include "pagoda/v1/events.pb.h"
#include "pagoda/v1/options.pb.h"

namespace pagoda {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using ::testing::HasSubstr;

// The message of a refusal; "" where the message is served.
template <class Proto>
std::string Refusal(const Proto& message) {
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
  operation.mutable_add_sequence()->set_tenant("t");
  EXPECT_EQ(Refusal(operation), "");
  operation.mutable_prefetch_prefix()->set_target(v1::PREFETCH_TARGET_MEMORY);
  operation.mutable_prefetch_prefix()->set_deadline_ms(0);
  EXPECT_EQ(Refusal(operation), "");
  operation.mutable_wait_for_ticket()->set_lane(v1::LANE_BACKUP);
  EXPECT_EQ(Refusal(operation), "");
  v1::ExecuteRequest execute;
  execute.mutable_batch()->set_step(3);
  execute.mutable_batch()->set_completed_step(2);
  EXPECT_EQ(Refusal(execute), "");
}

TEST(ServedFieldsTest, AReservedFieldIsRefusedByItsPath) {
  v1::GenerateRequest generate;
  generate.set_tenant("a");
  EXPECT_THAT(Refusal(generate), HasSubstr("tenant"));
  v1::Operation operation;
  operation.mutable_allocate_blocks()->set_tier(v1::TIER_SECONDARY);
  EXPECT_THAT(Refusal(operation), HasSubstr("allocate_blocks.tier"));
}

TEST(ServedFieldsTest, EveryKindOfFieldCounts) {
  v1::Operation number;
  number.mutable_match_prefix();
  number.set_operation_id(1);
  EXPECT_THAT(Refusal(number), HasSubstr("operation_id"));
  v1::Operation choice;
  choice.mutable_allocate_blocks()->set_tier(v1::TIER_SECONDARY);
  EXPECT_THAT(Refusal(choice), HasSubstr("allocate_blocks.tier"));
  v1::GenerateRequest text;
  text.set_tenant("x");
  EXPECT_THAT(Refusal(text), HasSubstr("tenant"));
}

TEST(ServedFieldsTest, TheOperationsOfABatchAreLeftToTheirOwnCheck) {
  v1::ExecuteRequest execute;
  execute.mutable_batch()->add_operations()->set_operation_id(1);
  EXPECT_EQ(Refusal(execute), "");
  EXPECT_THAT(Refusal(execute.batch().operations(0)), HasSubstr("operation_id"));
}

TEST(ServedFieldsTest, AnUnknownFieldIsRefusedByItsNumberAtAnyDepth) {
  v1::Operation operation;
  v1::BlockRef* block = operation.mutable_free_blocks()->add_blocks();
  block = operation.mutable_free_blocks()->add_blocks();
  block->GetReflection()->MutableUnknownFields(block)->AddVarint(77, 1);
  EXPECT_THAT(Refusal(operation), HasSubstr("free_blocks.blocks[1].unknown field number 77"));
}

// Some value, other than none.
void SetField(Message& message, const FieldDescriptor* field) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection.SetUInt32(&message, field, 1);
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.SetUInt64(&message, field, 1);
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection.SetString(&message, field, "1");
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection.SetEnumValue(&message, field, 1);
    default:
      FAIL() << "how to set " << field->full_name() << "?";
  }
}

// Sets, one after the other, each reserved field and an unknown field of `message` and of every
// message that it can hold, and demands that `operation`, of which it is a part, is refused for it.
// Returns how many things were set.
int ExpectEachIsRefused(const v1::Operation& operation, Message& message) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  int set = 0;
  const auto expect_refused = [&](const std::string& what) {
    ++set;
    EXPECT_THAT(Refusal(operation), HasSubstr(what)) << operation.ShortDebugString();
  };
  reflection.MutableUnknownFields(&message)->AddVarint(77, 1);
  expect_refused("unknown field number 77");
  reflection.MutableUnknownFields(&message)->Clear();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    if (field->options().GetExtension(v1::reserved_for_later)) {
      SetField(message, field);
      expect_refused(field->name());
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Message* inner = field->is_repeated() ? reflection.AddMessage(&message, field)
                                            : reflection.MutableMessage(&message, field);
      set += ExpectEachIsRefused(operation, *inner);
    }
    reflection.ClearField(&message, field);
  }
  return set;
}

// Whether an operation takes the walk or the shorter way.
TEST(ServedFieldsTest, EveryReservedAndEveryUnknownFieldOfEveryOperationIsRefused) {
  v1::Operation operation;
  const int kinds = v1::Operation::descriptor()->oneof_decl(0)->field_count();
  EXPECT_GT(ExpectEachIsRefused(operation, operation), kinds);
}

TEST(ServedFieldsTest, EveryOperationIsServed) {
  const google::protobuf::OneofDescriptor* kinds = v1::Operation::descriptor()->oneof_decl(0);
  for (int i = 0; i < kinds->field_count(); ++i) {
    v1::Operation operation;
    operation.GetReflection()->MutableMessage(&operation, kinds->field(i));
    EXPECT_EQ(Refusal(operation), "");
  }
}

}  // namespace
}  // namespace pagoda

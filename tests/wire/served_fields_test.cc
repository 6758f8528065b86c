#include "wire/served_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "pagoda/v1/admin.pb.h"
#include "pagoda/v1/cache.pb.h"
#include "pagoda/v1/engine.pb.h"
#include "pagoda/v1/events.pb.h"

namespace pagoda {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using ::testing::HasSubstr;

// The message of the refusal; "" if the message is served.
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

// A type that the check does not know would stop the daemon.
TEST(ServedFieldsTest, TheRequestOfEveryMethodIsKnown) {
  int methods = 0;
  for (const auto* file :
       {v1::ExecuteRequest::descriptor()->file(), v1::WatchRequest::descriptor()->file(),
        v1::GetStatusRequest::descriptor()->file(), v1::GenerateRequest::descriptor()->file()}) {
    ASSERT_EQ(file->service_count(), 1) << file->name();
    for (int i = 0; i < file->service(0)->method_count(); ++i, ++methods) {
      const auto* type = file->service(0)->method(i)->input_type();
      const Message& empty =
          *google::protobuf::MessageFactory::generated_factory()->GetPrototype(type);
      EXPECT_TRUE(CheckServed(empty).ok()) << type->full_name();
    }
  }
  EXPECT_GE(methods, 20);
}

void AddUnknown(Message& message) {
  message.GetReflection()->MutableUnknownFields(&message)->AddVarint(77, 1);
}

// A field whose number is now reserved is also unknown.
TEST(ServedFieldsTest, AFieldThatIsGoneIsRefused) {
  v1::Operation operation;
  operation.mutable_match_prefix();
  operation.GetReflection()->MutableUnknownFields(&operation)->AddVarint(30, 1);
  EXPECT_THAT(Refusal(operation), HasSubstr("unknown field number 30"));
}

TEST(ServedFieldsTest, TheOperationsOfABatchAreLeftToTheirOwnCheck) {
  v1::ExecuteRequest execute;
  AddUnknown(*execute.mutable_batch()->add_operations());
  EXPECT_EQ(Refusal(execute), "");
  EXPECT_THAT(Refusal(execute.batch().operations(0)), HasSubstr("unknown field number 77"));
}

TEST(ServedFieldsTest, AnUnknownFieldIsRefusedByItsNumberAtAnyDepth) {
  v1::Operation operation;
  operation.mutable_add_sequence()->add_retention();
  AddUnknown(*operation.mutable_add_sequence()->add_retention());
  EXPECT_THAT(Refusal(operation), HasSubstr("add_sequence.retention[1].unknown field number 77"));
}

// Sets an unknown field in `message`, and in every message that it can hold, one after the other.
// Checks that `operation`, of which `message` is a part, is refused each time. Returns the number
// of fields set.
int ExpectEachIsRefused(const v1::Operation& operation, Message& message) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  AddUnknown(message);
  EXPECT_THAT(Refusal(operation), HasSubstr("unknown field number 77"));
  reflection.MutableUnknownFields(&message)->Clear();
  int set = 1;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    Message* inner = field->is_repeated() ? reflection.AddMessage(&message, field)
                                          : reflection.MutableMessage(&message, field);
    set += ExpectEachIsRefused(operation, *inner);
    reflection.ClearField(&message, field);
  }
  return set;
}

// The check has two ways, a walk through the operation and a shorter one. This holds for both.
TEST(ServedFieldsTest, EveryUnknownFieldOfEveryOperationIsRefused) {
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

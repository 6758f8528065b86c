// The client's half of the wire against the daemon's half: every message passes through both halves
// unchanged. Reflection fills the messages, so a new field that one half forgets fails here.
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "google/protobuf/util/message_differencer.h"
#include "pagoda/v1/cache.pb.h"
#include "tests/wire/result_messages.h"
#include "wire/cache_info.h"
#include "wire/errors.h"
#include "wire/operations.h"
#include "wire/results.h"
#include "wire/rows.h"

namespace pagoda {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::util::MessageDifferencer;

constexpr size_t kDigestBytes = 32;
constexpr size_t kUuidBytes = 16;
// The elements of each repeated field.
constexpr int kElements = 2;

// Sets every served field of a message to a value that no other field has. The values are small
// numbers, so that they are valid priorities too.
class Filler {
 public:
  void Fill(Message& message) {
    const auto* type = message.GetDescriptor();
    for (int i = 0; i < type->field_count(); ++i) {
      const FieldDescriptor* field = type->field(i);
      for (int n = 0; n < (field->is_repeated() ? kElements : 1); ++n) Set(message, field);
    }
  }

 private:
  void Set(Message& message, const FieldDescriptor* field) {
    const Reflection& reflection = *message.GetReflection();
    const bool repeated = field->is_repeated();
    const uint32_t value = ++last_value_;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_UINT32:
        repeated ? reflection.AddUInt32(&message, field, value)
                 : reflection.SetUInt32(&message, field, value);
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        repeated ? reflection.AddUInt64(&message, field, value)
                 : reflection.SetUInt64(&message, field, value);
        break;
      // A field of google.protobuf.Timestamp, like the next one.
      case FieldDescriptor::CPPTYPE_INT64:
        reflection.SetInt64(&message, field, value);
        break;
      case FieldDescriptor::CPPTYPE_INT32:
        reflection.SetInt32(&message, field, static_cast<int32_t>(value));
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        reflection.SetBool(&message, field, true);
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        repeated ? reflection.AddString(&message, field, StringOf(field, value))
                 : reflection.SetString(&message, field, StringOf(field, value));
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        reflection.SetEnumValue(&message, field, 2);
        break;
      case FieldDescriptor::CPPTYPE_MESSAGE:
        Fill(*(repeated ? reflection.AddMessage(&message, field)
                        : reflection.MutableMessage(&message, field)));
        break;
      default:
        FAIL() << "no rule for " << field->full_name();
    }
  }

  static std::string StringOf(const FieldDescriptor* field, uint32_t value) {
    if (field->type() != FieldDescriptor::TYPE_BYTES) return "text " + std::to_string(value);
    if (field->containing_type() == v1::FillBlocksRequest::descriptor()) {
      return RowsToBytes<uint32_t>({value, value + 1, value + 2, 1, value + 3, value + 4, 0, 0});
    }
    if (field->name() == "blocks" ||
        field->name() == "grown") {  // Two handles, or three references.
      return RowsToBytes<uint32_t>({value, value + 1, value + 2, value + 3, value + 4, value + 5});
    }
    const size_t bytes = field->name() == "device_uuid" ? kUuidBytes : kDigestBytes;
    std::string digest;
    for (size_t i = 0; i < bytes; ++i) digest.push_back(static_cast<char>(value + 8 * i));
    return digest;
  }

  uint32_t last_value_ = 0;
};

// The strides of a pool follow from its shape; others are refused.
void SetStrides(v1::PoolMapping& pool) {
  const PoolLayout layout{.layers = {pool.layers().begin(), pool.layers().end()},
                          .num_kv_heads = pool.num_kv_heads(),
                          .head_dim = pool.head_dim(),
                          .dtype = DType::kFloat16,
                          .kv_factor = pool.kv_factor(),
                          .tokens_per_block = pool.tokens_per_block()};
  pool.set_content(v1::POOL_CONTENT_ELEMENTS);  // The others: PoolsOfEveryContentComeThrough.
  pool.set_slot_stride_bytes(layout.slot_stride_bytes());
  pool.set_layer_stride_bytes(layout.layer_stride_bytes());
  pool.set_kv_stride_bytes(layout.kv_stride_bytes());
  pool.set_head_stride_bytes(layout.head_stride_bytes());
  pool.set_token_stride_bytes(layout.token_stride_bytes());
}

bool Same(const Message& a, const Message& b, std::string* difference) {
  MessageDifferencer differencer;
  differencer.ReportDifferencesToString(difference);
  return differencer.Compare(a, b);
}

TEST(RoundTripTest, EveryFieldOfEveryOperationComesThrough) {
  const auto* oneof = v1::Operation::descriptor()->FindOneofByName("operation");
  for (int i = 0; i < oneof->field_count(); ++i) {
    SCOPED_TRACE(oneof->field(i)->name());
    v1::Operation sent;
    Filler().Fill(*sent.GetReflection()->MutableMessage(&sent, oneof->field(i)));
    const absl::StatusOr<Operation> operation = OperationFromProto(sent);
    ASSERT_TRUE(operation.ok()) << operation.status();
    std::string difference;
    EXPECT_TRUE(Same(sent, OperationToProto(*operation), &difference)) << difference;
  }
  EXPECT_EQ(static_cast<size_t>(oneof->field_count()), std::variant_size_v<OperationVariant>);
}

TEST(RoundTripTest, PoolsOfEveryContentComeThrough) {
  const auto layout = CacheLayout::Create(
      {.tokens_per_block = 4,
       .layers = {{.num_kv_heads = 2, .head_dim = 8, .dtype = DType::kFloat8E4M3},
                  {.num_kv_heads = 1,
                   .head_dim = 8,
                   .dtype = DType::kFloat8E5M2,
                   .kind = KvKind::kKeyOnly},
                  {.num_kv_heads = 1, .head_dim = 8, .dtype = DType::kUint8},
                  {.kind = KvKind::kOpaque, .bytes_per_block = 77}}});
  ASSERT_TRUE(layout.ok()) << layout.status();
  ASSERT_EQ(layout->windows()[0].pools.size(), 6u);
  for (const PoolLayout& pool : layout->windows()[0].pools) {
    v1::PoolMapping sent;
    PoolMappingToProto({.layout = pool, .num_slots = 3, .segments = {}}, &sent);
    const absl::StatusOr<PoolMapping> mapping = PoolMappingFromProto(sent);
    ASSERT_TRUE(mapping.ok()) << mapping.status();
    EXPECT_EQ(mapping->layout.content, pool.content);
    EXPECT_EQ(mapping->layout.dtype, pool.dtype);
    EXPECT_EQ(mapping->layout.bytes_per_block, pool.bytes_per_block);
    EXPECT_EQ(mapping->layout.slot_stride_bytes(), pool.slot_stride_bytes());
    v1::PoolMapping again;
    PoolMappingToProto(*mapping, &again);
    std::string difference;
    EXPECT_TRUE(Same(sent, again, &difference)) << difference;
  }
}

TEST(RoundTripTest, EveryFieldOfEveryResultComesThrough) {
  const auto* oneof = v1::OperationResult::descriptor()->FindOneofByName("result");
  for (int i = 0; i < oneof->field_count(); ++i) {
    SCOPED_TRACE(oneof->field(i)->name());
    v1::OperationResult sent;
    Filler().Fill(*sent.GetReflection()->MutableMessage(&sent, oneof->field(i)));
    if (sent.has_describe_pools()) {
      for (v1::PoolMapping& pool : *sent.mutable_describe_pools()->mutable_pools()) {
        SetStrides(pool);
      }
    }
    if (sent.has_append_step()) {
      // The details of an error follow from its reason.
      for (v1::FailedAppend& failed : *sent.mutable_append_step()->mutable_failed()) {
        *failed.mutable_error() = ToProtoStatus(MakeError(Reason::kBlocksExhausted, "none left"));
      }
    }
    const absl::StatusOr<OperationResult> result = OperationResultFromProto(sent);
    ASSERT_TRUE(result.ok()) << result.status();
    v1::OperationResult again;
    OperationResultToProto(*result, &again);
    std::string difference;
    EXPECT_TRUE(Same(sent, again, &difference)) << difference;
  }
  EXPECT_EQ(static_cast<size_t>(oneof->field_count()), std::variant_size_v<OperationResultVariant>);
}

TEST(RoundTripTest, WhatABatchSaysOfItselfComesThrough) {
  v1::BatchResult sent;
  Filler().Fill(sent);
  sent.clear_results();
  v1::BatchResult again;
  BatchStateToProto(BatchResultFromProto(sent), &again);
  std::string difference;
  EXPECT_TRUE(Same(sent, again, &difference)) << difference;

  const v1::Batch batch = BatchToProto({}, {.step = 9, .completed_step = 7});
  EXPECT_EQ(StepsFromProto(batch).step, 9u);
  EXPECT_EQ(StepsFromProto(batch).completed_step, 7u);
}

TEST(RoundTripTest, AnErrorKeepsItsReason) {
  const absl::Status error = MakeError(Reason::kPinBudgetExceeded, "9 blocks; 3 are left");
  v1::OperationResult result;
  OperationResultToProto(error, &result);
  EXPECT_EQ(OperationResultFromProto(result).status(), error);
}

}  // namespace
}  // namespace pagoda

#include "wire/bytes/request_bounds.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "manager/api/operation.h"
#include "manager/sequences/operation_checks.h"
#include "pagoda/v1/cache.pb.h"

namespace pagoda {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::io::CodedInputStream;
using WireFormat = google::protobuf::internal::WireFormatLite;

// A list that has a bound of its own, by the messages in it.
struct BoundedList {
  const Descriptor* element;
  size_t most;
  Reason reason;
  const char* what;
};
constexpr size_t kNumLists = 2;
const BoundedList& List(size_t index) {
  static const BoundedList kLists[kNumLists] = {
      {v1::Operation::descriptor(), kMaxBatchOperations, Reason::kBatchTooLarge, "operations"},
      {v1::RetentionRange::descriptor(), kMaxRetentionRanges, Reason::kInvalidArgument,
       "retention ranges"},
  };
  return kLists[index];
}

class Walk {
 public:
  explicit Walk(CodedInputStream* in) : in_(in) {}

  // False at the first damage or excess. The excess is in status().
  bool Message(const Descriptor& type) {
    Counts counts = {};
    return Message(type, 0, counts);
  }

  const absl::Status& status() const { return status_; }

 private:
  static constexpr int kMaxDepth = 100;  // The depth limit of protobuf's parser.
  using Counts = size_t[kNumLists];      // The number of elements of each list.

  bool Message(const Descriptor& type, int depth, Counts& counts) {
    const FieldDescriptor* field = nullptr;
    while (const uint32_t tag = in_->ReadTag()) {
      const int number = WireFormat::GetTagFieldNumber(tag);
      if (field == nullptr || field->number() != number) field = type.FindFieldByNumber(number);
      const bool is_known = IsKnown(field, tag);
      if (!is_known && !CountUnknown(tag)) return false;
      if (!is_known || !IsPart(*field)) {
        const bool goes_on = is_known && field->is_repeated() ? Numbers(*field, tag)
                                                              : WireFormat::SkipField(in_, tag);
        if (!goes_on) return false;
        continue;
      }
      for (size_t i = 0; i < kNumLists; ++i) {
        const BoundedList& list = List(i);
        if (field->message_type() == list.element && ++counts[i] > list.most) {
          return Refuse(list.reason, list.most, list.what);
        }
      }
      if (++parts_ > kMaxRequestParts) {
        return Refuse(Reason::kInvalidArgument, kMaxRequestParts, "parts");
      }
      const bool goes_on = field->type() == FieldDescriptor::TYPE_MESSAGE
                               ? Submessage(*field, depth, counts)
                               : WireFormat::SkipField(in_, tag);
      if (!goes_on) return false;
    }
    return true;
  }

  bool Submessage(const FieldDescriptor& field, int depth, Counts& counts) {
    uint32_t size;
    if (depth == kMaxDepth || !in_->ReadVarint32(&size) || size > INT32_MAX) return false;
    const CodedInputStream::Limit limit = in_->PushLimit(static_cast<int>(size));
    // The parser merges a field that comes again into the first one. So do its lists.
    Counts of_element = {};
    const bool goes_on =
        Message(*field.message_type(), depth + 1, field.is_repeated() ? of_element : counts);
    if (!goes_on || in_->BytesUntilLimit() != 0) return false;
    in_->PopLimit(limit);
    return true;
  }

  // Whether the parser takes the bytes for this field. Numbers can be packed or not.
  static bool IsKnown(const FieldDescriptor* field, uint32_t tag) {
    if (field == nullptr) return false;
    const auto wire = WireFormat::GetTagWireType(tag);
    const auto type = static_cast<WireFormat::FieldType>(field->type());
    return wire == WireFormat::WireTypeForFieldType(type) ||
           (field->is_packable() && wire == WireFormat::WIRETYPE_LENGTH_DELIMITED);
  }

  // One number of a list, or many of them packed.
  bool Numbers(const FieldDescriptor& field, uint32_t tag) {
    const bool is_varint =
        WireFormat::WireTypeForFieldType(static_cast<WireFormat::FieldType>(field.type())) ==
        WireFormat::WIRETYPE_VARINT;
    if (!is_varint) return WireFormat::SkipField(in_, tag);
    if (WireFormat::GetTagWireType(tag) == WireFormat::WIRETYPE_VARINT) {
      ++varints_;
      if (!WireFormat::SkipField(in_, tag)) return false;
    } else if (!PackedVarints()) {
      return false;
    }
    return varints_ <= kMaxRequestVarints ||
           Refuse(Reason::kInvalidArgument, kMaxRequestVarints, "numbers");
  }

  // Counts the bytes that end a varint.
  bool PackedVarints() {
    uint32_t size;
    if (!in_->ReadVarint32(&size) || size > INT32_MAX) return false;
    for (int left = static_cast<int>(size); left > 0;) {
      const void* data;
      int available;
      if (!in_->GetDirectBufferPointer(&data, &available)) return false;
      const absl::string_view bytes(static_cast<const char*>(data),
                                    static_cast<size_t>(std::min(available, left)));
      varints_ += static_cast<size_t>(
          std::count_if(bytes.begin(), bytes.end(), [](char byte) { return (byte & 0x80) == 0; }));
      left -= static_cast<int>(bytes.size());
      if (!in_->Skip(static_cast<int>(bytes.size()))) return false;
    }
    return true;
  }

  // Whether the field is a message, a text or a byte string.
  static bool IsPart(const FieldDescriptor& field) {
    return field.type() == FieldDescriptor::TYPE_MESSAGE ||
           field.type() == FieldDescriptor::TYPE_STRING ||
           field.type() == FieldDescriptor::TYPE_BYTES;
  }

  // The parser keeps unknown fields, outside of its arena, until CheckServed refuses them. No
  // message has groups, and fields inside of one would be kept too.
  bool CountUnknown(uint32_t tag) {
    if (WireFormat::GetTagWireType(tag) == WireFormat::WIRETYPE_START_GROUP) {
      status_ = MakeError(Reason::kFieldNotServed,
                          absl::StrCat("this version does not serve the group with field number ",
                                       WireFormat::GetTagFieldNumber(tag)));
      return false;
    }
    if (++unknown_ <= kMaxUnknownFields) return true;
    return Refuse(Reason::kFieldNotServed, kMaxUnknownFields, "unknown fields");
  }

  bool Refuse(Reason reason, size_t most, const char* what) {
    status_ = MakeError(reason, absl::StrCat("the request has more than ", most, " ", what,
                                             "; no more are allowed"));
    return false;
  }

  CodedInputStream* const in_;
  size_t parts_ = 0;
  size_t unknown_ = 0;
  size_t varints_ = 0;
  absl::Status status_;
};

absl::Status Check(const Descriptor& type, CodedInputStream* in) {
  Walk walk(in);
  walk.Message(type);
  return walk.status();
}

}  // namespace

absl::Status CheckRequestBounds(const Descriptor& type, absl::string_view bytes) {
  if (bytes.size() < kLeastCheckedBytes) return absl::OkStatus();
  CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                      static_cast<int>(bytes.size()));
  return Check(type, &in);
}

absl::Status CheckRequestBounds(const Descriptor& type,
                                google::protobuf::io::ZeroCopyInputStream* bytes) {
  CodedInputStream in(bytes);
  return Check(type, &in);
}

}  // namespace pagoda

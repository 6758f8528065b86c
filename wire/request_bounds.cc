#include "wire/request_bounds.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "manager/operation.h"
#include "manager/operation_checks.h"
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
  bool Message(const Descriptor& type, int depth) {
    size_t counts[kNumLists] = {};  // Of this message's elements of each list.
    const FieldDescriptor* field = nullptr;
    while (const uint32_t tag = in_->ReadTag()) {
      const int number = WireFormat::GetTagFieldNumber(tag);
      if (field == nullptr || field->number() != number) field = type.FindFieldByNumber(number);
      if (!IsPart(field, tag)) {
        if (!WireFormat::SkipField(in_, tag)) return false;
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
      if (field->type() != FieldDescriptor::TYPE_MESSAGE) {
        if (!WireFormat::SkipField(in_, tag)) return false;
        continue;
      }
      uint32_t size;
      if (depth == kMaxDepth || !in_->ReadVarint32(&size) || size > INT32_MAX) return false;
      const CodedInputStream::Limit limit = in_->PushLimit(static_cast<int>(size));
      if (!Message(*field->message_type(), depth + 1) || in_->BytesUntilLimit() != 0) return false;
      in_->PopLimit(limit);
    }
    return true;
  }

  const absl::Status& status() const { return status_; }

 private:
  static constexpr int kMaxDepth = 100;  // That of protobuf's parser.

  // Whether the field is a message, a text or a byte string. Packed numbers are not.
  static bool IsPart(const FieldDescriptor* field, uint32_t tag) {
    return field != nullptr &&
           WireFormat::GetTagWireType(tag) == WireFormat::WIRETYPE_LENGTH_DELIMITED &&
           (field->type() == FieldDescriptor::TYPE_MESSAGE ||
            field->type() == FieldDescriptor::TYPE_STRING ||
            field->type() == FieldDescriptor::TYPE_BYTES);
  }

  bool Refuse(Reason reason, size_t most, const char* what) {
    status_ = MakeError(reason, absl::StrCat("the request has more than ", most, " ", what,
                                             "; no more are allowed"));
    return false;
  }

  CodedInputStream* const in_;
  size_t parts_ = 0;
  absl::Status status_;
};

absl::Status Check(const Descriptor& type, CodedInputStream* in) {
  Walk walk(in);
  walk.Message(type, 0);
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

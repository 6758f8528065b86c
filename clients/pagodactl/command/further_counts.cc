#include "clients/pagodactl/command/further_counts.h"

#include <cstdint>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "clients/command_line/terminal/format.h"
#include "google/protobuf/descriptor.h"
#include "pagoda/v1/admin.pb.h"

namespace pagoda {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::string WithSpaces(absl::string_view name) {
  return absl::StrReplaceAll(absl::StripSuffix(name, "_total"), {{"_", " "}});
}

// "12", or "(ok 12, missing 1)". Empty: the field is no count, or it is 0.
std::string CountText(const Message& message, const FieldDescriptor& field) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  if (field.is_repeated()) {
    if (field.message_type() != v1::NamedCount::descriptor()) return "";
    std::vector<std::string> counts;
    for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
      const auto& one =
          static_cast<const v1::NamedCount&>(reflection.GetRepeatedMessage(message, &field, i));
      counts.push_back(absl::StrCat(WithSpaces(one.name()), " ", FormatCount(one.count())));
    }
    return counts.empty() ? "" : absl::StrCat("(", absl::StrJoin(counts, ", "), ")");
  }
  uint64_t count = 0;
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_UINT64) {
    count = reflection.GetUInt64(message, &field);
  } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_UINT32) {
    count = reflection.GetUInt32(message, &field);
  }
  return count == 0 ? "" : FormatCount(count);
}

}  // namespace

std::string FurtherCounts(const Message& message, int last_known) {
  std::vector<std::string> texts;
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.number() <= last_known || !absl::EndsWith(field.name(), "_total")) continue;
    const std::string text = CountText(message, field);
    if (!text.empty()) texts.push_back(absl::StrCat(WithSpaces(field.name()), " ", text));
  }
  return absl::StrJoin(texts, ", ");
}

}  // namespace pagoda

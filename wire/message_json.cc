#include "wire/message_json.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/util/json_util.h"

namespace pagoda {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// The length of the well-formed UTF-8 character that begins at `at`; 0 if there is none.
size_t CharacterAt(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const unsigned first = byte(at);
  if (first < 0x80) return 1;
  const size_t length = first < 0xC2   ? 0
                        : first < 0xE0 ? 2
                        : first < 0xF0 ? 3
                        : first < 0xF5 ? 4
                                       : 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
  }
  // Neither overlong, nor a surrogate, nor above U+10FFFF.
  const unsigned second = byte(at + 1);
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second >= 0xA0) ||
      (first == 0xF0 && second < 0x90) || (first == 0xF4 && second >= 0x90)) {
    return 0;
  }
  return length;
}

bool IsUtf8(const std::string& text) {
  for (size_t i = 0; i < text.size();) {
    const size_t length = CharacterAt(text, i);
    if (length == 0) return false;
    i += length;
  }
  return true;
}

std::string WithReplacements(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t length = CharacterAt(text, i);
    length == 0 ? out.append("\xEF\xBF\xBD") : out.append(text, i, length);
    i += length == 0 ? 1 : length;
  }
  return out;
}

// Calls visit(field, index) for each string of the message, and descend(field, index) for each
// message in it. The index is -1 unless the field is repeated.
template <class Visit, class Descend>
void ForEachField(const Message& message, Visit visit, Descend descend) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const bool is_text = field->type() == FieldDescriptor::TYPE_STRING;
    if (!is_text && field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const int begin = field->is_repeated() ? 0 : -1;
    const int end = field->is_repeated() ? reflection.FieldSize(message, field) : 0;
    for (int i = begin; i < end; ++i) {
      is_text ? visit(field, i) : descend(field, i);
    }
  }
}

std::string TextAt(const Message& message, const FieldDescriptor* field, int index) {
  const Reflection& reflection = *message.GetReflection();
  return index < 0 ? reflection.GetString(message, field)
                   : reflection.GetRepeatedString(message, field, index);
}

bool IsAllUtf8(const Message& message) {
  const Reflection& reflection = *message.GetReflection();
  bool valid = true;
  ForEachField(
      message,
      [&](const FieldDescriptor* field, int i) {
        valid = valid && IsUtf8(TextAt(message, field, i));
      },
      [&](const FieldDescriptor* field, int i) {
        valid = valid && IsAllUtf8(i < 0 ? reflection.GetMessage(message, field)
                                         : reflection.GetRepeatedMessage(message, field, i));
      });
  return valid;
}

void Replace(Message* message) {
  const Reflection& reflection = *message->GetReflection();
  ForEachField(
      *message,
      [&](const FieldDescriptor* field, int i) {
        std::string text = WithReplacements(TextAt(*message, field, i));
        i < 0 ? reflection.SetString(message, field, std::move(text))
              : reflection.SetRepeatedString(message, field, i, std::move(text));
      },
      [&](const FieldDescriptor* field, int i) {
        Replace(i < 0 ? reflection.MutableMessage(message, field)
                      : reflection.MutableRepeatedMessage(message, field, i));
      });
}

}  // namespace

absl::StatusOr<std::string> JsonOf(const Message& message) {
  // Protobuf would leave the bytes out, and write a line to standard error for each.
  if (!IsAllUtf8(message)) {
    const std::unique_ptr<Message> valid(message.New());
    valid->CopyFrom(message);
    Replace(valid.get());
    return JsonOf(*valid);
  }
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  if (!status.ok()) {
    return absl::InternalError(
        absl::StrCat(message.GetTypeName(), " has no JSON: ", status.ToString()));
  }
  return json;
}

}  // namespace pagoda

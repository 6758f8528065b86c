#include "server/admin/declared_status.h"

#include <string>

#include "base/check.h"
#include "google/protobuf/descriptor.h"
#include "pagoda/v1/admin.pb.h"

namespace pagoda::server {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

const FieldDescriptor& FieldNamed(std::string_view name, const Message& message) {
  const FieldDescriptor* const field = message.GetDescriptor()->FindFieldByName(std::string(name));
  PAGODA_CHECK(field != nullptr, "a declared field of the status is in its message");
  return *field;
}

template <class Number>
void Set(std::string_view name, Number number, Message* out) {
  const FieldDescriptor& field = FieldNamed(name, *out);
  const google::protobuf::Reflection& reflection = *out->GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.SetUInt64(out, &field, static_cast<uint64_t>(number));
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection.SetUInt32(out, &field, static_cast<uint32_t>(number));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.SetDouble(out, &field, static_cast<double>(number));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.SetBool(out, &field, number != 0);
    default:
      PAGODA_CHECK(false, "a declared field of the status is a number");
  }
}

}  // namespace

void SetCount(std::string_view name, uint64_t number, Message* out) { Set(name, number, out); }
void SetNumber(std::string_view name, double number, Message* out) { Set(name, number, out); }

void AddNamedCount(std::string_view name, std::string_view kind, uint64_t count, Message* out) {
  auto& named =
      static_cast<v1::NamedCount&>(*out->GetReflection()->AddMessage(out, &FieldNamed(name, *out)));
  named.set_name(std::string(kind));
  named.set_count(count);
}

}  // namespace pagoda::server

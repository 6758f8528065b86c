#include "wire/served_fields.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/unknown_field_set.h"
#include "pagoda/v1/admin.pb.h"
#include "pagoda/v1/blocks.pb.h"
#include "pagoda/v1/cache.pb.h"
#include "pagoda/v1/caches.pb.h"
#include "pagoda/v1/engine.pb.h"
#include "pagoda/v1/events.pb.h"
#include "pagoda/v1/prefixes.pb.h"

namespace pagoda {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// The fields of one message type that the walk visits.
struct Plan {
  std::vector<const FieldDescriptor*> messages;
};

using Plans = absl::flat_hash_map<const Descriptor*, Plan>;

void AddPlan(const Descriptor* type, Plans* plans) {
  if (plans->contains(type)) return;
  Plan plan;
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
        field->message_type() != v1::Operation::descriptor()) {
      plan.messages.push_back(field);
    }
  }
  plans->emplace(type, plan);
  for (const FieldDescriptor* field : plan.messages) AddPlan(field->message_type(), plans);
}

Plans MakePlans() {
  Plans plans;
  AddPlan(v1::Operation::descriptor(), &plans);
  for (const auto* file :
       {v1::ExecuteRequest::descriptor()->file(), v1::OpenCacheRequest::descriptor()->file(),
        v1::FetchPrefixRequest::descriptor()->file(), v1::MaterializeRequest::descriptor()->file(),
        v1::WatchRequest::descriptor()->file(), v1::GetStatusRequest::descriptor()->file(),
        v1::GenerateRequest::descriptor()->file()}) {
    for (int i = 0; i < file->message_type_count(); ++i) AddPlan(file->message_type(i), &plans);
  }
  return plans;
}

const Plan& PlanOf(const Descriptor* type) {
  // Made once, then only read. Never destroyed.
  static const Plans& plans = *new Plans(MakePlans());
  const auto it = plans.find(type);
  PAGODA_CHECK(it != plans.end(), "every request's type has a plan");
  return it->second;
}

// The path of the first field in `message` that is not served. It is built on the way back, so a
// good message costs no strings.
std::optional<std::string> FindUnserved(const Message& message);

std::string Join(const std::string& outer, const std::string& inner) {
  return absl::StrCat(outer, ".", inner);
}

std::optional<std::string> FindUnservedIn(const Message& message, const Reflection& reflection,
                                          const FieldDescriptor* field) {
  if (!field->is_repeated()) {
    if (!reflection.HasField(message, field)) return std::nullopt;
    const auto found = FindUnserved(reflection.GetMessage(message, field));
    return found ? std::optional(Join(field->name(), *found)) : std::nullopt;
  }
  for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
    const auto found = FindUnserved(reflection.GetRepeatedMessage(message, field, i));
    if (found) return Join(absl::StrCat(field->name(), "[", i, "]"), *found);
  }
  return std::nullopt;
}

std::optional<std::string> FindUnserved(const Message& message) {
  const Plan& plan = PlanOf(message.GetDescriptor());
  const Reflection& reflection = *message.GetReflection();
  if (const auto& unknown = reflection.GetUnknownFields(message); !unknown.empty()) {
    return absl::StrCat("unknown field number ", unknown.field(0).number());
  }
  for (const FieldDescriptor* field : plan.messages) {
    if (auto found = FindUnservedIn(message, reflection, field)) return found;
  }
  return std::nullopt;
}

template <class Proto>
bool KnowsAll(const Proto& message) {
  static const Reflection& reflection = *Proto::GetReflection();
  return reflection.GetUnknownFields(message).empty();
}

// Whether the operation is a frequent one of engines and has no unknown field. Uses the generated
// accessors, because the walk costs more than running such an operation. False for every other
// operation; the walk checks these.
bool IsPlainlyServed(const v1::Operation& operation) {
  if (!KnowsAll(operation)) return false;
  switch (operation.operation_case()) {
    case v1::Operation::kAllocateBlocks:
      return KnowsAll(operation.allocate_blocks());
    case v1::Operation::kFreeBlocks:
      return KnowsAll(operation.free_blocks());
    case v1::Operation::kReserveTokens:
      return KnowsAll(operation.reserve_tokens());
    case v1::Operation::kCommitTokens:
      return KnowsAll(operation.commit_tokens());
    case v1::Operation::kAppendTokens:
      return KnowsAll(operation.append_tokens());
    case v1::Operation::kAppendStep:
      return KnowsAll(operation.append_step());
    case v1::Operation::kFreeSequence:
      return KnowsAll(operation.free_sequence());
    default:
      return false;
  }
}

}  // namespace

absl::Status CheckServed(const v1::Operation& operation) {
  if (IsPlainlyServed(operation)) return absl::OkStatus();
  return CheckServed(static_cast<const Message&>(operation));
}

absl::Status CheckServed(const Message& message) {
  const std::optional<std::string> found = FindUnserved(message);
  if (!found) return absl::OkStatus();
  return MakeError(Reason::kFieldNotServed, absl::StrCat("this version does not serve ", *found));
}

}  // namespace pagoda

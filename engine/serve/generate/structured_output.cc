#include "engine/serve/generate/structured_output.h"

#include "base/error.h"

namespace pagoda::server {
namespace {

// REQUIRES: request.has_structured_output(). Errors: INVALID_ARGUMENT.
absl::StatusOr<StructuredOutput> WantedOutput(const v1::GenerateRequest& request) {
  using Kind = StructuredOutput::Kind;
  const v1::StructuredOutput& wanted = request.structured_output();
  switch (wanted.kind_case()) {
    case v1::StructuredOutput::kJsonSchema:
      return StructuredOutput{Kind::kJsonSchema, wanted.json_schema()};
    case v1::StructuredOutput::kJsonObject:
      if (!wanted.json_object()) return InvalidArgument("structured_output.json_object is false");
      return StructuredOutput{Kind::kJsonObject, ""};
    case v1::StructuredOutput::kRegex:
      return StructuredOutput{Kind::kRegex, wanted.regex()};
    case v1::StructuredOutput::kGrammar:
      return StructuredOutput{Kind::kGrammar, wanted.grammar()};
    case v1::StructuredOutput::KIND_NOT_SET:
      break;
  }
  return InvalidArgument("structured_output says nothing");
}

}  // namespace

absl::StatusOr<std::shared_ptr<const CompiledGrammar>> ReadStructuredOutput(
    const v1::GenerateRequest& request, const ModelText& text) {
  if (!request.has_structured_output()) return nullptr;
  const absl::StatusOr<StructuredOutput> wanted = WantedOutput(request);
  if (!wanted.ok()) return wanted.status();
  return text.CompileGrammar(*wanted);
}

bool MustCompile(const v1::GenerateRequest& request, const ModelText& text) {
  if (!request.has_structured_output()) return false;
  const absl::StatusOr<StructuredOutput> wanted = WantedOutput(request);
  return wanted.ok() && text.MustCompile(*wanted);
}

}  // namespace pagoda::server

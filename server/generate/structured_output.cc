#include "server/generate/structured_output.h"

#include "base/error.h"

namespace pagoda::server {

absl::StatusOr<std::shared_ptr<const CompiledGrammar>> ReadStructuredOutput(
    const v1::GenerateRequest& request, const ModelText& text) {
  if (!request.has_structured_output()) return nullptr;
  using Kind = StructuredOutput::Kind;
  const v1::StructuredOutput& wanted = request.structured_output();
  switch (wanted.kind_case()) {
    case v1::StructuredOutput::kJsonSchema:
      return text.CompileGrammar({Kind::kJsonSchema, wanted.json_schema()});
    case v1::StructuredOutput::kJsonObject:
      if (!wanted.json_object()) return InvalidArgument("structured_output.json_object is false");
      return text.CompileGrammar({Kind::kJsonObject, ""});
    case v1::StructuredOutput::kRegex:
      return text.CompileGrammar({Kind::kRegex, wanted.regex()});
    case v1::StructuredOutput::kGrammar:
      return text.CompileGrammar({Kind::kGrammar, wanted.grammar()});
    case v1::StructuredOutput::KIND_NOT_SET:
      break;
  }
  return InvalidArgument("structured_output says nothing");
}

}  // namespace pagoda::server

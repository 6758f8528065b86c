#include "clients/command_line/options/format_options.h"

#include <fstream>
#include <iterator>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda {
namespace {

using Kind = StructuredOutput::Kind;

absl::StatusOr<std::optional<StructuredOutput>> FromFile(Kind kind, const std::string& path) {
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad() || text.empty()) {
    return InvalidArgument(absl::StrCat("cannot read ", path, ", or it is empty"));
  }
  return StructuredOutput{kind, std::move(text)};
}

}  // namespace

void AddFormatOptions(CLI::App& command, FormatOptions& options) {
  CLI::Option_group* group =
      command.add_option_group("format", "At most one of these: what the answer's text must be");
  group
      ->add_option("--json-schema", options.json_schema_file,
                   "A file with a JSON schema; the answer is JSON that conforms to it")
      ->type_name("FILE");
  group->add_flag("--json-object", options.json_object, "The answer is a JSON object");
  group->add_option("--regex", options.regex,
                    "A regular expression, of which the answer is a whole match");
  group
      ->add_option("--grammar", options.grammar_file,
                   "A file with an EBNF grammar; the answer is what its rule 'root' derives")
      ->type_name("FILE");
  group->require_option(0, 1);
}

absl::StatusOr<std::optional<StructuredOutput>> ReadFormat(const FormatOptions& options) {
  if (!options.json_schema_file.empty()) {
    return FromFile(Kind::kJsonSchema, options.json_schema_file);
  }
  if (!options.grammar_file.empty()) return FromFile(Kind::kGrammar, options.grammar_file);
  if (!options.regex.empty()) return StructuredOutput{Kind::kRegex, options.regex};
  if (options.json_object) return StructuredOutput{Kind::kJsonObject, ""};
  return std::nullopt;
}

absl::Status ApplyFormat(const FormatOptions& options, v1::GenerateRequest& request) {
  absl::StatusOr<std::optional<StructuredOutput>> format = ReadFormat(options);
  if (!format.ok() || !format->has_value()) return format.status();
  v1::StructuredOutput& wanted = *request.mutable_structured_output();
  std::string& text = (*format)->text;
  switch ((*format)->kind) {
    case Kind::kJsonSchema:
      wanted.set_json_schema(std::move(text));
      break;
    case Kind::kJsonObject:
      wanted.set_json_object(true);
      break;
    case Kind::kRegex:
      wanted.set_regex(std::move(text));
      break;
    case Kind::kGrammar:
      wanted.set_grammar(std::move(text));
      break;
  }
  return absl::OkStatus();
}

}  // namespace pagoda

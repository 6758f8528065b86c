#include "engine/serve/openai/api_structured.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "engine/serve/openai/api_error.h"

namespace pagoda::server {
namespace {

using Format = StructuredOutput::Kind;

// The end of the JSON string that begins at `begin`.
size_t EndOfString(absl::string_view json, size_t begin) {
  size_t i = begin + 1;
  while (json[i] != '"') i += json[i] == '\\' ? 2 : 1;
  return i + 1;
}

// The text of an object's member, as the client wrote it: a parsed schema has lost the order of its
// properties, in which the answer has them. `object` is the text of a valid JSON object. Cost:
// linear.
absl::string_view MemberIn(absl::string_view object, absl::string_view name) {
  absl::string_view found;
  absl::string_view key;
  int depth = 0;
  size_t begin = 0;  // Where the value behind the key begins; 0: nowhere yet.
  for (size_t i = 0; i < object.size();) {
    const char c = object[i];
    if (c == '"') {
      const size_t end = EndOfString(object, i);
      if (depth == 1 && begin == 0) key = object.substr(i, end - i);
      i = end;
      continue;
    }
    if (c == ':' && depth == 1 && begin == 0) begin = i + 1;
    const bool closes = c == '}' || c == ']';
    if (begin != 0 && ((c == ',' && depth == 1) || (closes && depth == 1))) {
      if (nlohmann::json::parse(key).get<std::string>() == name)
        found = object.substr(begin, i - begin);
      begin = 0;
    }
    depth += c == '{' || c == '[' ? 1 : 0;
    depth -= closes ? 1 : 0;
    ++i;
  }
  return found;
}

void Want(ApiFields& fields, const char* name, StructuredOutput wanted, ApiRequest& request) {
  if (request.structured.has_value()) {
    fields.Complain(BadField(name, "is given together with another format of the answer"));
  }
  request.structured = std::move(wanted);
}

// {"type": "json_schema", "json_schema": {"name": ..., "schema": {...}, "strict": ...}}. `strict`
// changes nothing: every answer conforms.
void ReadSchema(ApiFields& format, absl::string_view body, ApiRequest& request) {
  const ApiJson* given = format.Find("json_schema");
  if (given == nullptr || !given->is_object()) {
    return format.Complain(BadField("response_format.json_schema", "is not an object"));
  }
  ApiFields schema(*given);
  for (const char* name : {"name", "description", "strict"}) schema.Ignore(name);
  if (schema.Find("schema") == nullptr) {
    return format.Complain(BadField("response_format.json_schema.schema", "is missing"));
  }
  format.Complain(schema.Finish());
  const absl::string_view text =
      MemberIn(MemberIn(MemberIn(body, "response_format"), "json_schema"), "schema");
  Want(format, "response_format", {Format::kJsonSchema, std::string(text)}, request);
}

void ReadResponseFormat(ApiFields& fields, absl::string_view body, ApiRequest& request) {
  const ApiJson* given = fields.Find("response_format");
  if (given == nullptr) return;
  if (!given->is_object() || !given->contains("type")) {
    return fields.Complain(BadField("response_format", "is not an object with a type"));
  }
  ApiFields format(*given);
  std::string type;
  format.Read("type", &type);
  if (type == "json_schema") {
    ReadSchema(format, body, request);
  } else if (type == "json_object") {
    Want(format, "response_format", {Format::kJsonObject, ""}, request);
  } else {
    fields.RefuseUnless("response_format", {{"type", "text"}});
  }
  fields.Complain(format.Finish());
}

}  // namespace

void ReadStructured(ApiFields& fields, absl::string_view body, ApiRequest& request) {
  ReadResponseFormat(fields, body, request);
  if (const ApiJson* schema = fields.Find("guided_json")) {
    // vLLM takes the schema as an object, or as its text.
    std::string text = schema->is_string() ? schema->get<std::string>()
                                           : std::string(MemberIn(body, "guided_json"));
    Want(fields, "guided_json", {Format::kJsonSchema, std::move(text)}, request);
  }
  const auto read = [&](const char* name, Format kind) {
    if (fields.Find(name) == nullptr) return;
    std::string text;
    fields.Read(name, &text);
    Want(fields, name, {kind, std::move(text)}, request);
  };
  read("guided_regex", Format::kRegex);
  read("guided_grammar", Format::kGrammar);
  if (request.structured.has_value() && request.beam_width > 1) {
    fields.Complain(BadField("use_beam_search", "cannot be combined with a format of the answer"));
  }
}

}  // namespace pagoda::server

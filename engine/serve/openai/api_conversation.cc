#include "engine/serve/openai/api_conversation.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "engine/serve/openai/api_error.h"

namespace pagoda::server {
namespace {

bool HasValue(const ApiJson& object, const char* name) {
  const auto field = object.find(name);
  return field != object.end() && !field->is_null();
}

bool HasText(const ApiJson& object, const char* name) {
  const auto field = object.find(name);
  return field != object.end() && field->is_string();
}

// A text, or a list of text parts. A message that only calls tools needs none.
absl::StatusOr<std::string> ContentOf(const ApiJson& message, const std::string& path) {
  if (!HasValue(message, "content") && HasValue(message, "tool_calls")) return std::string();
  const auto content = message.find("content");
  if (content == message.end()) return BadField(path, "is missing");
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) return BadField(path, "is neither a string nor a list of parts");
  std::string text;
  for (const ApiJson& part : *content) {
    if (!part.is_object() || !HasText(part, "type") || part["type"] != "text" ||
        !HasText(part, "text")) {
      return FieldNotServed(path, "has a part that is not text");
    }
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

// The API has the arguments of a call as JSON in a text; templates take the object itself. A text
// that is no object stays a text.
absl::Status OpenArguments(ApiReader& reader, ApiJson& calls, const std::string& path) {
  if (!calls.is_array()) return BadField(path, "is not a list");
  for (ApiJson& call : calls) {
    if (!call.is_object() || !HasValue(call, "function") || !call["function"].is_object() ||
        !HasText(call["function"], "name")) {
      return BadField(path, "has a call without a function");
    }
    ApiJson& function = call["function"];
    if (!HasText(function, "arguments")) continue;
    const auto& text = function["arguments"].get_ref<const std::string&>();
    absl::StatusOr<ApiJson> arguments = text.empty() ? ApiJson::object() : reader.Read(text, path);
    if (!arguments.ok()) return arguments.status();
    if (arguments->is_object()) function["arguments"] = *std::move(arguments);
  }
  return absl::OkStatus();
}

absl::StatusOr<ChatMessage> MessageOf(ApiReader& reader, ApiJson message, const std::string& path) {
  if (!message.is_object() || !HasText(message, "role")) return BadField(path, "has no role");
  for (const char* name : {"function_call", "audio"}) {
    if (HasValue(message, name)) return FieldNotServed(absl::StrCat(path, ".", name));
  }
  absl::StatusOr<std::string> content = ContentOf(message, path + ".content");
  if (!content.ok()) return content.status();
  ChatMessage read = {.role = message["role"].get<std::string>(), .content = *std::move(content)};
  ApiJson others = ApiJson::object();
  for (auto& [name, value] : message.items()) {
    if (name == "role" || name == "content" || value.is_null()) continue;
    if (name == "tool_calls") {
      if (absl::Status status = OpenArguments(reader, value, path + ".tool_calls"); !status.ok()) {
        return status;
      }
    }
    others[name] = std::move(value);
  }
  if (!others.empty()) read.fields = others.dump();
  return read;
}

void ReadMessages(ApiFields& fields, ApiReader& reader, ApiJson& body, ApiRequest& request) {
  fields.Find("messages");
  if (!HasValue(body, "messages") || !body["messages"].is_array()) {
    return fields.Complain(BadField("messages", "is not a list"));
  }
  for (ApiJson& message : body["messages"]) {
    absl::StatusOr<ChatMessage> read = MessageOf(
        reader, std::move(message), absl::StrCat("messages[", request.messages.size(), "]"));
    if (!read.ok()) return fields.Complain(read.status());
    request.messages.push_back(*std::move(read));
  }
}

// The model chooses whether it calls a tool. Nothing forces it.
void ReadTools(ApiFields& fields, const ApiJson& body, ApiRequest& request) {
  fields.Find("tools");
  const ApiJson* const choice = fields.Find("tool_choice");
  const bool leaves_out = choice != nullptr && *choice == "none";
  if (choice != nullptr && !leaves_out && *choice != "auto") {
    fields.Complain(FieldNotServed("tool_choice", "can only be \"auto\" or \"none\""));
  }
  if (!HasValue(body, "tools")) return;
  const ApiJson& tools = body["tools"];
  if (!tools.is_array() || tools.size() > kMaxTools) {
    return fields.Complain(BadField("tools", absl::StrCat("is not a list of at most ", kMaxTools)));
  }
  for (const ApiJson& tool : tools) {
    if (!tool.is_object())
      return fields.Complain(BadField("tools", "has a tool that is no object"));
    if (!leaves_out) request.tools.push_back(tool.dump());
  }
}

}  // namespace

void ReadConversation(ApiFields& fields, ApiReader& reader, ApiJson& body, ApiRequest& request) {
  ReadMessages(fields, reader, body, request);
  ReadTools(fields, body, request);
  if (const ApiJson* const variables = fields.Find("chat_template_kwargs")) {
    if (!variables->is_object()) {
      return fields.Complain(BadField("chat_template_kwargs", "is not an object"));
    }
    request.template_kwargs = variables->dump();
  }
}

}  // namespace pagoda::server

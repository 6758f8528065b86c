#include "server/openai/api_conversation.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/openai/api_error.h"

namespace pagoda::server {
namespace {

// Keeps the order of keys.
using Json = nlohmann::ordered_json;

bool HasValue(const Json& object, const char* name) {
  const auto field = object.find(name);
  return field != object.end() && !field->is_null();
}

bool HasText(const Json& object, const char* name) {
  const auto field = object.find(name);
  return field != object.end() && field->is_string();
}

// Reads JSON of one request. Objects that keep their order find a key by looking at all keys before
// it, so their members are bounded: in each object, and in the squares of all together.
class OrderedReader {
 public:
  // `path` names the text in errors: INVALID_ARGUMENT if it has too many members, or nests too
  // deeply. Discarded JSON if it is not valid.
  absl::StatusOr<Json> Read(absl::string_view text, const std::string& path) {
    bool is_deep = false;
    bool is_large = false;
    std::vector<size_t> members(kMaxBodyDepth + 1);  // Of the open objects, by the depth of a key.
    Json root = Json::parse(
        text.begin(), text.end(),
        [&](int depth, Json::parse_event_t event, Json&) {
          if (depth >= kMaxBodyDepth) is_deep = true;
          if (is_deep || is_large) return false;
          if (event == Json::parse_event_t::object_start) members[depth + 1] = 0;
          if (event == Json::parse_event_t::key) {
            searched_ += ++members[depth];
            is_large = members[depth] > kMaxMembers || searched_ > kMaxSearched;
          }
          return !is_large;
        },
        /*allow_exceptions=*/false);
    if (is_deep) {
      return BadField(path, absl::StrCat("nests more than ", kMaxBodyDepth, " levels deep"));
    }
    if (is_large) {
      return BadField(path, absl::StrCat("has an object with more than ", kMaxMembers,
                                         " members, or many objects with nearly as many"));
    }
    return root;
  }

 private:
  static constexpr size_t kMaxSearched = 50'000'000;

  size_t searched_ = 0;  // Keys that were compared, at most.
};

// A text, or a list of text parts. A message that only calls tools needs none.
absl::StatusOr<std::string> ContentOf(const Json& message, const std::string& path) {
  if (!HasValue(message, "content") && HasValue(message, "tool_calls")) return std::string();
  const auto content = message.find("content");
  if (content == message.end()) return BadField(path, "is missing");
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) return BadField(path, "is neither a string nor a list of parts");
  std::string text;
  for (const Json& part : *content) {
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
absl::Status OpenArguments(OrderedReader& reader, Json& calls, const std::string& path) {
  if (!calls.is_array()) return BadField(path, "is not a list");
  for (Json& call : calls) {
    if (!call.is_object() || !HasValue(call, "function") || !call["function"].is_object() ||
        !HasText(call["function"], "name")) {
      return BadField(path, "has a call without a function");
    }
    Json& function = call["function"];
    if (!HasText(function, "arguments")) continue;
    const auto& text = function["arguments"].get_ref<const std::string&>();
    absl::StatusOr<Json> arguments = text.empty() ? Json::object() : reader.Read(text, path);
    if (!arguments.ok()) return arguments.status();
    if (arguments->is_object()) function["arguments"] = *std::move(arguments);
  }
  return absl::OkStatus();
}

absl::StatusOr<ChatMessage> MessageOf(OrderedReader& reader, Json message,
                                      const std::string& path) {
  if (!message.is_object() || !HasText(message, "role")) return BadField(path, "has no role");
  for (const char* name : {"function_call", "audio"}) {
    if (HasValue(message, name)) return FieldNotServed(absl::StrCat(path, ".", name));
  }
  absl::StatusOr<std::string> content = ContentOf(message, path + ".content");
  if (!content.ok()) return content.status();
  ChatMessage read = {.role = message["role"].get<std::string>(), .content = *std::move(content)};
  Json others = Json::object();
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

void ReadMessages(ApiFields& fields, OrderedReader& reader, Json& body, ApiRequest& request) {
  fields.Find("messages");
  if (!HasValue(body, "messages") || !body["messages"].is_array()) {
    return fields.Complain(BadField("messages", "is not a list"));
  }
  for (Json& message : body["messages"]) {
    absl::StatusOr<ChatMessage> read = MessageOf(
        reader, std::move(message), absl::StrCat("messages[", request.messages.size(), "]"));
    if (!read.ok()) return fields.Complain(read.status());
    request.messages.push_back(*std::move(read));
  }
}

// The model chooses whether it calls a tool. Nothing forces it.
void ReadTools(ApiFields& fields, const Json& body, ApiRequest& request) {
  fields.Find("tools");
  const nlohmann::json* const choice = fields.Find("tool_choice");
  const bool leaves_out = choice != nullptr && *choice == "none";
  if (choice != nullptr && !leaves_out && *choice != "auto") {
    fields.Complain(FieldNotServed("tool_choice", "can only be \"auto\" or \"none\""));
  }
  if (!HasValue(body, "tools")) return;
  const Json& tools = body["tools"];
  if (!tools.is_array() || tools.size() > kMaxTools) {
    return fields.Complain(BadField("tools", absl::StrCat("is not a list of at most ", kMaxTools)));
  }
  for (const Json& tool : tools) {
    if (!tool.is_object())
      return fields.Complain(BadField("tools", "has a tool that is no object"));
    if (!leaves_out) request.tools.push_back(tool.dump());
  }
}

}  // namespace

void ReadConversation(ApiFields& fields, absl::string_view body, ApiRequest& request) {
  OrderedReader reader;
  absl::StatusOr<Json> read = reader.Read(body, "body");
  if (!read.ok()) return fields.Complain(read.status());
  Json& ordered = *read;
  ReadMessages(fields, reader, ordered, request);
  ReadTools(fields, ordered, request);
  if (fields.Find("chat_template_kwargs") != nullptr) {
    const Json& variables = ordered["chat_template_kwargs"];
    if (!variables.is_object()) {
      return fields.Complain(BadField("chat_template_kwargs", "is not an object"));
    }
    request.template_kwargs = variables.dump();
  }
}

}  // namespace pagoda::server

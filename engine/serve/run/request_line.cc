#include "engine/serve/run/request_line.h"

#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/error.h"

namespace pagoda {
namespace {

using Json = nlohmann::ordered_json;

// A request has two levels. The library's copies and texts of a value call themselves for each
// level, so a deep one would use up the stack.
constexpr int kMostLevels = 16;

bool IsDeep(absl::string_view line) {
  int level = 0;
  bool in_string = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') in_string = !in_string;
    if (in_string && line[i] == '\\') ++i;  // The next character ends no string.
    if (in_string) continue;
    if (line[i] == '[' || line[i] == '{') ++level;
    if (line[i] == ']' || line[i] == '}') --level;
    if (level > kMostLevels) return true;
  }
  return false;
}

absl::Status Refuse(const std::string& what) { return MakeError(Reason::kInvalidArgument, what); }

bool IsUint32(const Json& json) {
  return json.is_number_unsigned() && json.get<uint64_t>() <= std::numeric_limits<uint32_t>::max();
}

absl::StatusOr<std::vector<TokenId>> TokensFrom(const std::string& name, const Json& json) {
  if (!json.is_array()) return Refuse(absl::StrCat(name, " is not a list of token ids"));
  std::vector<TokenId> tokens;
  tokens.reserve(json.size());
  for (const Json& token : json) {
    if (!IsUint32(token)) {
      return Refuse(absl::StrCat(name, "[", tokens.size(), "] is not a token id: ", token.dump()));
    }
    tokens.push_back(token.get<TokenId>());
  }
  return tokens;
}

// Reads a number into a field of the request, if it fits the field's type.
template <class Number>
absl::Status ReadNumber(const std::string& name, const Json& value, Number* field) {
  const bool fits = std::is_floating_point_v<Number> ? value.is_number()
                    : sizeof(Number) == 8            ? value.is_number_unsigned()
                                                     : IsUint32(value);
  if (!fits) return Refuse(absl::StrCat(name, " is not a valid number: ", value.dump()));
  *field = value.get<Number>();
  return absl::OkStatus();
}

absl::Status ReadField(const std::string& name, const Json& value, GenerateRequest& request) {
  SamplingParams& sampling = request.sampling;
  if (name == "temperature") return ReadNumber(name, value, &sampling.temperature);
  if (name == "top_k") return ReadNumber(name, value, &sampling.top_k);
  if (name == "top_p") return ReadNumber(name, value, &sampling.top_p);
  if (name == "repetition_penalty") return ReadNumber(name, value, &sampling.repetition_penalty);
  if (name == "seed") return ReadNumber(name, value, &sampling.seed);
  if (name == "num_samples") return ReadNumber(name, value, &request.num_samples);
  if (name == "max_draft_tokens") return ReadNumber(name, value, &request.max_draft_tokens);
  if (name == "beam_width") return ReadNumber(name, value, &request.beam_width);
  if (name == "length_penalty") return ReadNumber(name, value, &request.length_penalty);
  if (name == "priority") return ReadNumber(name, value, &request.priority);
  if (name == "prompt" || name == "stop_tokens") {
    absl::StatusOr<std::vector<TokenId>> tokens = TokensFrom(name, value);
    if (!tokens.ok()) return tokens.status();
    (name == "prompt" ? request.prompt : request.stop_tokens) = *std::move(tokens);
  } else if (name == "max_new_tokens") {
    if (!IsUint32(value)) return Refuse(absl::StrCat(name, " is not a count: ", value.dump()));
    request.max_new_tokens = value.get<uint32_t>();
  } else if (name == "early_stopping") {
    if (!value.is_boolean()) return Refuse(absl::StrCat(name, " is not a flag: ", value.dump()));
    request.early_stopping = value.get<bool>();
  } else if (name == "cache_salt" || name == "adapter") {
    if (!value.is_string()) return Refuse(absl::StrCat(name, " is not a string: ", value.dump()));
    (name == "adapter" ? request.adapter : request.name_space.cache_salt) =
        value.get<std::string>();
  } else {
    return Refuse(absl::StrCat("unknown field '", name, "'"));
  }
  return absl::OkStatus();
}

absl::StatusOr<GenerateRequest> RequestFrom(const Json& json, uint32_t default_max_new_tokens) {
  if (!json.is_object()) return Refuse("the line is not a JSON object");
  if (!json.contains("prompt")) return Refuse("the request has no prompt");
  GenerateRequest request;
  request.max_new_tokens = default_max_new_tokens;
  for (const auto& [name, value] : json.items()) {
    if (name == "id") continue;
    if (absl::Status status = ReadField(name, value, request); !status.ok()) return status;
  }
  return request;
}

}  // namespace

RequestLine ParseRequestLine(const std::string& line, uint32_t default_max_new_tokens) {
  if (IsDeep(line)) return {.id = nullptr, .request = Refuse("the line is nested too deeply")};
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  RequestLine parsed{.id = nullptr, .request = Refuse("the line is not JSON")};
  if (json.is_discarded()) return parsed;
  parsed.request = RequestFrom(json, default_max_new_tokens);
  if (json.is_object() && json.contains("id")) {
    parsed.id = json["id"];
    if (!parsed.id.is_string() && !parsed.id.is_number()) {
      parsed.request = Refuse("id is neither a string nor a number");
    }
  }
  return parsed;
}

std::string AnswerLine(const Json& id, const absl::StatusOr<Generated>& generated) {
  Json answer = {{"id", id}};
  if (generated.ok()) {
    answer.update(GeneratedToJson(*generated));
  } else {
    const Reason reason = ReasonOf(generated.status());
    answer["error"] = {
        {"reason", reason == Reason::kNone ? absl::StatusCodeToString(generated.status().code())
                                           : std::string(ReasonName(reason))},
        {"message", std::string(generated.status().message())}};
  }
  // Broken UTF-8 becomes the replacement character.
  return answer.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace pagoda

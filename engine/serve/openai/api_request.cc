#include "engine/serve/openai/api_request.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/engine.h"
#include "engine/request/generate.h"
#include "engine/serve/openai/api_conversation.h"
#include "engine/serve/openai/api_error.h"
#include "engine/serve/openai/api_fields.h"
#include "engine/serve/openai/api_reader.h"
#include "engine/serve/openai/api_structured.h"

namespace pagoda::server {
namespace {

using Kind = ApiRequest::Kind;

constexpr int64_t kMaxNumber = std::numeric_limits<int32_t>::max();
// OpenAI's default, for completions only.
constexpr uint32_t kDefaultCompletionTokens = 16;

bool IsTokenId(const ApiJson& value) {
  return value.is_number_unsigned() && value.get<uint64_t>() <= std::numeric_limits<TokenId>::max();
}

bool IsTokens(const ApiJson& value) {
  return value.is_array() && !value.empty() && std::all_of(value.begin(), value.end(), IsTokenId);
}

void ReadPrompts(ApiFields& fields, ApiRequest& request) {
  const ApiJson* prompt = fields.Find("prompt");
  const auto add = [&](const ApiJson& value) {
    if (value.is_string()) {
      request.prompts.emplace_back(value.get<std::string>());
    } else if (IsTokens(value)) {
      request.prompts.emplace_back(value.get<std::vector<TokenId>>());
    } else {
      fields.Complain(
          BadField("prompt", "is not a string, a list of token ids, or a list of either"));
    }
  };
  if (prompt == nullptr) return fields.Complain(BadField("prompt", "is missing"));
  if (!prompt->is_array() || IsTokens(*prompt)) return add(*prompt);
  if (prompt->empty() || prompt->size() > kMaxApiChoices) {
    return fields.Complain(BadField(
        "prompt", absl::StrCat("must have at least one element and at most ", kMaxApiChoices)));
  }
  for (const ApiJson& element : *prompt) add(element);
}

void ReadStops(ApiFields& fields, ApiRequest& request) {
  if (const ApiJson* stop = fields.Find("stop")) {
    const ApiJson list = stop->is_string() ? ApiJson::array({*stop}) : *stop;
    const bool good = list.is_array() && list.size() <= kMaxStopStrings &&
                      std::all_of(list.begin(), list.end(), [](const ApiJson& text) {
                        return text.is_string() && !text.get_ref<const std::string&>().empty() &&
                               text.get_ref<const std::string&>().size() <= kMaxStopStringBytes;
                      });
    if (!good) {
      return fields.Complain(
          BadField("stop", absl::StrCat("is not one string or a list of at most ", kMaxStopStrings,
                                        ", each of 1 to ", kMaxStopStringBytes, " bytes")));
    }
    request.stop = list.get<std::vector<std::string>>();
  }
  if (const ApiJson* ids = fields.Find("stop_token_ids")) {
    if (!ids->is_array() || ids->size() > kMaxApiChoices ||
        !std::all_of(ids->begin(), ids->end(), IsTokenId)) {
      return fields.Complain(BadField("stop_token_ids", "is not a list of token ids"));
    }
    request.stop_token_ids = ids->get<std::vector<TokenId>>();
  }
}

void ReadSampling(ApiFields& fields, ApiRequest& request) {
  SamplingParams& sampling = request.sampling;
  sampling.temperature = 1.0f;
  // Checked after each field, so that the error names the field. The first error counts.
  const auto read = [&](const char* name, float* out) {
    fields.Read(name, out);
    fields.Complain(AboutField(CheckSampling(sampling), name));
  };
  read("temperature", &sampling.temperature);
  read("top_p", &sampling.top_p);
  read("repetition_penalty", &sampling.repetition_penalty);
  int64_t top_k = 0;
  fields.ReadInteger("top_k", -1, kMaxNumber, &top_k);  // -1: all, as in vLLM.
  sampling.top_k = static_cast<uint32_t>(std::max<int64_t>(top_k, 0));
  int64_t seed = 0;
  request.has_seed = fields.Find("seed") != nullptr;
  fields.ReadInteger("seed", std::numeric_limits<int64_t>::min(),
                     std::numeric_limits<int64_t>::max(), &seed);
  sampling.seed = static_cast<uint64_t>(seed);
}

// A completion gives the number of logprobs. A chat gives a flag and a number.
void ReadLogprobs(ApiFields& fields, ApiRequest& request) {
  int64_t count = 0;
  bool wanted = false;
  if (request.kind == Kind::kCompletion) {
    wanted = fields.Find("logprobs") != nullptr;
    fields.ReadInteger("logprobs", 0, kMaxTopLogprobs, &count);
  } else {
    fields.Read("logprobs", &wanted);
    fields.ReadInteger("top_logprobs", 0, kMaxTopLogprobs, &count);
    if (count > 0 && !wanted) fields.Complain(BadField("top_logprobs", "needs logprobs"));
  }
  if (wanted) request.sampling.top_logprobs = static_cast<uint32_t>(count);
}

void ReadStreaming(ApiFields& fields, ApiRequest& request) {
  fields.Read("stream", &request.stream);
  const ApiJson* options = fields.Find("stream_options");
  if (options == nullptr) return;
  if (!request.stream || !options->is_object()) {
    return fields.Complain(BadField("stream_options", "must be an object, and needs stream: true"));
  }
  ApiFields more(*options);
  more.Read("include_usage", &request.include_usage);
  more.Ignore("include_obfuscation");
  fields.Complain(more.Finish());
}

void ReadCounts(ApiFields& fields, ApiRequest& request) {
  int64_t samples = 1;
  fields.ReadInteger("n", 1, kMaxApiChoices, &samples);
  request.samples = static_cast<uint32_t>(samples);
  int64_t tokens = 0;
  const auto read = [&](const char* name) {
    if (fields.Find(name) == nullptr) return;
    fields.ReadInteger(name, 1, kMaxNumber, &tokens);
    request.max_tokens = static_cast<uint32_t>(tokens);
  };
  read("max_tokens");
  if (request.kind == Kind::kChat) read("max_completion_tokens");
  if (request.kind == Kind::kCompletion && !request.max_tokens.has_value()) {
    request.max_tokens = kDefaultCompletionTokens;
  }
  if (request.prompts.size() * request.samples > kMaxApiChoices) {
    fields.Complain(BadField("n", absl::StrCat("asks for more than ", kMaxApiChoices, " answers")));
  }
}

void ReadExtensions(ApiFields& fields, ApiRequest& request) {
  int64_t priority = 0;
  fields.ReadInteger("priority", -kMaxNumber, kMaxNumber, &priority);
  request.priority = static_cast<int32_t>(priority);
  int64_t draft_tokens = 0;
  fields.ReadInteger("max_draft_tokens", 0, Engine::kMaxDraftTokens, &draft_tokens);
  request.max_draft_tokens = static_cast<uint32_t>(draft_tokens);
  fields.Read("cache_salt", &request.cache_salt);
  fields.Read("ignore_eos", &request.ignore_eos);
  fields.Read("return_token_ids", &request.return_token_ids);
}

// The fields have vLLM's names. The width is best_of, or n without it. A beam search of one beam is
// greedy.
void ReadBeams(ApiFields& fields, ApiRequest& request) {
  bool wanted = false;
  fields.Read("use_beam_search", &wanted);
  fields.Read("length_penalty", &request.length_penalty);
  fields.Read("early_stopping", &request.early_stopping);
  if (!wanted) {
    if (request.length_penalty != 1) {
      fields.Complain(BadField("length_penalty", "needs use_beam_search"));
    }
    if (request.early_stopping)
      fields.Complain(BadField("early_stopping", "needs use_beam_search"));
    return;
  }
  int64_t width = request.samples;
  fields.ReadInteger("best_of", request.samples, kMaxBeamWidth, &width);
  if (width > kMaxBeamWidth) {
    fields.Complain(BadField("n", absl::StrCat("is above ", kMaxBeamWidth, ", the most beams")));
  }
  request.beam_width = static_cast<uint32_t>(width);
  if (!(std::abs(request.length_penalty) <= kMaxLengthPenalty)) {
    fields.Complain(BadField("length_penalty", absl::StrCat("must be from ", -kMaxLengthPenalty,
                                                            " to ", kMaxLengthPenalty)));
  }
  SamplingParams& sampling = request.sampling;
  if (fields.Find("temperature") == nullptr) sampling.temperature = 0;
  const std::pair<const char*, bool> others[] = {
      {"temperature", sampling.temperature != 0},
      {"top_k", sampling.top_k != 0},
      {"top_p", sampling.top_p != 1},
      {"repetition_penalty", sampling.repetition_penalty != 1},
      {"logprobs", sampling.top_logprobs.has_value()},
      {"stop", !request.stop.empty()},
      {"max_draft_tokens", request.max_draft_tokens != 0}};
  for (const auto& [name, is_set] : others) {
    if (is_set) fields.Complain(BadField(name, "cannot be combined with use_beam_search"));
  }
  if (request.beam_width == 1) {
    request.length_penalty = 1;
    request.early_stopping = false;
  }
}

void RefuseTheRest(ApiFields& fields, const ApiRequest& request) {
  for (const char* name :
       {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"}) {
    fields.Ignore(name);
  }
  fields.RefuseUnless("presence_penalty", 0);
  fields.RefuseUnless("frequency_penalty", 0);
  fields.RefuseUnless("logit_bias", ApiJson::object());
  if (request.kind == Kind::kCompletion) {
    fields.RefuseUnless("echo", false);
    fields.RefuseUnless("suffix", "");
    if (request.beam_width == 1) fields.RefuseUnless("best_of", request.samples);
  } else {
    fields.RefuseUnless("functions", ApiJson::array());
    fields.RefuseUnless("function_call", "none");
    fields.RefuseUnless("modalities", {"text"});
    fields.Ignore("parallel_tool_calls");
  }
}

}  // namespace

absl::StatusOr<ApiRequest> ParseApiRequest(Kind kind, absl::string_view body,
                                           const ParseGuard& guard) {
  ApiReader reader(guard);
  absl::StatusOr<ApiJson> root = reader.Read(body, "body");
  if (!root.ok()) return root.status();
  if (root->is_discarded()) return BadField("body", "not valid JSON");
  if (!root->is_object()) return BadField("body", "is not a JSON object");
  ApiFields fields(*root);
  ApiRequest request{.kind = kind};
  if (fields.Find("model") == nullptr) fields.Complain(BadField("model", "is missing"));
  fields.Read("model", &request.model);
  if (kind == Kind::kCompletion) {
    ReadPrompts(fields, request);
  } else {
    ReadConversation(fields, reader, *root, request);
  }
  ReadCounts(fields, request);
  ReadSampling(fields, request);
  ReadLogprobs(fields, request);
  ReadStops(fields, request);
  ReadStreaming(fields, request);
  ReadExtensions(fields, request);
  ReadBeams(fields, request);
  ReadStructured(fields, body, request);
  RefuseTheRest(fields, request);
  if (absl::Status status = fields.Finish(); !status.ok()) return status;
  return request;
}

}  // namespace pagoda::server

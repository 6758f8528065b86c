// Parses the requests of OpenAI's API.
#ifndef PAGODA_ENGINE_SERVE_OPENAI_API_REQUEST_H_
#define PAGODA_ENGINE_SERVE_OPENAI_API_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/sampling/sampling.h"
#include "engine/serve/openai/api_reader.h"
#include "engine/structured/grammar.h"
#include "engine/text/chat/chat_format.h"
#include "pools/types.h"

namespace pagoda::server {

// A text, or the ids of its tokens.
using ApiPrompt = std::variant<std::string, std::vector<TokenId>>;

// /v1/completions or /v1/chat/completions.
struct ApiRequest {
  enum class Kind : uint8_t { kCompletion, kChat };

  Kind kind = Kind::kCompletion;
  std::string model;
  std::vector<ApiPrompt> prompts;     // For a completion; at least one.
  std::vector<ChatMessage> messages;  // For a chat.
  std::vector<std::string> tools;     // For a chat: JSON objects.
  std::string template_kwargs;        // For a chat: a JSON object, or empty.
  std::optional<uint32_t> max_tokens;
  uint32_t samples = 1;  // `n`.
  SamplingParams sampling;
  bool has_seed = false;
  std::vector<std::string> stop;
  std::optional<StructuredOutput> structured;  // From `response_format` or a field of vLLM.
  bool stream = false;
  bool include_usage = false;
  // Pagoda's extensions.
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  bool return_token_ids = false;
  int32_t priority = 0;
  uint32_t max_draft_tokens = 0;
  std::string cache_salt;
  uint32_t beam_width = 1;  // Above 1: a beam search, whose `samples` best answers are wanted.
  float length_penalty = 1;
  bool early_stopping = false;
};

// The limit on the prompts of one request, and on its answers (prompts times samples).
inline constexpr size_t kMaxApiChoices = 128;
inline constexpr size_t kMaxStopStrings = 16;
inline constexpr size_t kMaxStopStringBytes = 1024;

// Errors: INVALID_ARGUMENT (not JSON, nested too deeply, a field with a wrong type or value),
// FIELD_NOT_SERVED (an unknown field, or one that would change the answer and is not supported).
// Those of the guard, which sees the cost of the JSON while it is parsed. Fields without an effect
// here (`user`, `metadata`) are ignored. Cost: linear.
absl::StatusOr<ApiRequest> ParseApiRequest(
    ApiRequest::Kind kind, absl::string_view body,
    const ParseGuard& guard = [](size_t) { return absl::OkStatus(); });

}  // namespace pagoda::server

#endif  // PAGODA_ENGINE_SERVE_OPENAI_API_REQUEST_H_

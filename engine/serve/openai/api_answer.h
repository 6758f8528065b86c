// Builds answers in the format of OpenAI's API.
#ifndef PAGODA_ENGINE_SERVE_OPENAI_API_ANSWER_H_
#define PAGODA_ENGINE_SERVE_OPENAI_API_ANSWER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/request/generate.h"
#include "engine/serve/openai/api_json.h"
#include "engine/serve/openai/api_request.h"
#include "engine/serve/prompt/choice_text.h"
#include "nlohmann/json.hpp"
#include "server/callers/identity.h"

namespace pagoda::server {

// {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details"}.
Json UsageJson(absl::Span<const GenerateReport> reports, ReuseNumbers reuse);
// Pagoda's extension. Over several requests, the time to the first token is the shortest, and the
// total time is the longest. Durations are in seconds.
Json PagodaJson(absl::Span<const GenerateReport> reports, ReuseNumbers reuse);

// Builds the JSON objects of one answer. Thread-compatible.
class ApiAnswer {
 public:
  enum class TokenIds : uint8_t { kLeaveOut, kShow };

  ApiAnswer(ApiRequest::Kind kind, std::string model, TokenIds ids, ReuseNumbers reuse,
            absl::Time created);

  // The whole answer. Each element of `choices` is one complete choice.
  Json Whole(absl::Span<const ChoicePiece> choices, absl::Span<const GenerateReport> reports) const;

  // For a stream: the chunk that begins a choice of a chat, and the chunk for one piece.
  Json Beginning(uint32_t choice) const;
  Json Chunk(const ChoicePiece& piece) const;
  // The last chunk if the client asked for usage. It has no choices.
  Json UsageChunk(absl::Span<const GenerateReport> reports) const;
  // The value of "pagoda" in the last chunk with choices, if there is no usage chunk.
  Json Pagoda(absl::Span<const GenerateReport> reports) const {
    return PagodaJson(reports, reuse_);
  }

 private:
  Json Frame(const char* object) const;
  Json Choice(const ChoicePiece& piece) const;
  Json LogprobsJson(const ChoicePiece& piece) const;
  const char* ChunkName() const;

  const ApiRequest::Kind kind_;
  const std::string model_;
  const TokenIds ids_;
  const ReuseNumbers reuse_;
  const std::string id_;
  const int64_t created_;
};

}  // namespace pagoda::server

#endif  // PAGODA_ENGINE_SERVE_OPENAI_API_ANSWER_H_

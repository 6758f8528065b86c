// Answers as clients of OpenAI's API read them.
#ifndef PAGODA_SERVER_OPENAI_API_ANSWER_H_
#define PAGODA_SERVER_OPENAI_API_ANSWER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/generate.h"
#include "server/callers/identity.h"
#include "server/http/status_json.h"
#include "server/openai/api_request.h"
#include "server/openai/choice_text.h"

namespace pagoda::server {

// {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details"}.
Json UsageJson(absl::Span<const GenerateReport> reports, ReuseNumbers reuse);
// Pagoda's own: of several requests the first token's time is the earliest, the total the longest.
// Durations are seconds.
Json PagodaJson(absl::Span<const GenerateReport> reports, ReuseNumbers reuse);

// The objects of one answer. Thread-compatible.
class ApiAnswer {
 public:
  enum class TokenIds : uint8_t { kLeaveOut, kShow };

  ApiAnswer(ApiRequest::Kind kind, std::string model, TokenIds ids, ReuseNumbers reuse,
            absl::Time created);

  // All at once; one element of `choices` each, complete.
  Json Whole(absl::Span<const ChoicePiece> choices, absl::Span<const GenerateReport> reports) const;

  // In a stream: what a chat begins a choice with, and what a piece adds.
  Json Beginning(uint32_t choice) const;
  Json Chunk(const ChoicePiece& piece) const;
  // The last one where usage is asked for. It has no choices.
  Json UsageChunk(absl::Span<const GenerateReport> reports) const;
  // What the last chunk with choices has under "pagoda" where there is no usage chunk.
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

#endif  // PAGODA_SERVER_OPENAI_API_ANSWER_H_

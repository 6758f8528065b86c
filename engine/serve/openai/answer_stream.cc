#include "engine/serve/openai/answer_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/serve/openai/api_error.h"
#include "nlohmann/json.hpp"

namespace pagoda::server {
namespace {

std::string EventOf(const Json& json) { return absl::StrCat("data: ", TextOf(json), "\n\n"); }

}  // namespace

bool AnswerStream::Write(std::string text) {
  if (!begun_) {
    begun_ = true;
    if (!exchange_.BeginStream("text/event-stream; charset=utf-8")) return false;
    std::string beginnings;
    for (uint32_t i = 0; options_.is_chat && i < options_.choices; ++i) {
      beginnings += EventOf(answer_.Beginning(i));
    }
    text = beginnings + text;
  }
  return exchange_.Write(text);
}

bool AnswerStream::Add(absl::Span<const ChoicePiece> pieces) {
  std::string text;
  for (const ChoicePiece& piece : pieces) {
    if (piece.finish_reason != nullptr && --open_choices_ == 0) {
      last_ = piece;
    } else {
      text += EventOf(answer_.Chunk(piece));
    }
  }
  return text.empty() || Write(std::move(text));
}

void AnswerStream::Finish(absl::Span<const GenerateReport> reports) {
  std::string text;
  if (last_.has_value()) {
    Json chunk = answer_.Chunk(*last_);
    if (!options_.include_usage) chunk["pagoda"] = answer_.Pagoda(reports);
    text += EventOf(chunk);
  }
  if (options_.include_usage) text += EventOf(answer_.UsageChunk(reports));
  Write(text + "data: [DONE]\n\n");
  exchange_.EndStream();
}

void AnswerStream::Fail(const absl::Status& status) {
  if (!begun_) {
    exchange_.Answer(ApiErrorResponse(status));
    return;
  }
  Write(EventOf({{"error", ApiErrorJson(status)}}));
  exchange_.EndStream();
}

}  // namespace pagoda::server

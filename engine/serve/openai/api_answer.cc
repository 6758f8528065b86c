#include "engine/serve/openai/api_answer.h"

#include <algorithm>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/text/encoding/utf8.h"
#include "nlohmann/json.hpp"

namespace pagoda::server {
namespace {

using Kind = ApiRequest::Kind;

std::string NewId(Kind kind) {
  absl::BitGen random;
  return absl::StrCat(kind == Kind::kChat ? "chatcmpl-" : "cmpl-",
                      absl::Hex(absl::Uniform<uint64_t>(random), absl::kZeroPad16),
                      absl::Hex(absl::Uniform<uint64_t>(random), absl::kZeroPad16));
}

// Null if the token is only a part of a character's bytes.
Json BytesJson(const std::string& text) {
  if (absl::StrContains(text, kReplacementCharacter)) return nullptr;
  Json bytes = Json::array();
  for (const char byte : text) bytes.push_back(static_cast<uint8_t>(byte));
  return bytes;
}

Json ChatLogprob(const std::string& text, float logprob) {
  return {{"token", text}, {"logprob", logprob}, {"bytes", BytesJson(text)}};
}

Json ChatLogprobs(const std::vector<ApiLogprob>& logprobs) {
  Json content = Json::array();
  for (const ApiLogprob& entry : logprobs) {
    Json row = ChatLogprob(entry.text, entry.logprob);
    row["top_logprobs"] = Json::array();
    for (const auto& [text, logprob] : entry.top) {
      row["top_logprobs"].push_back(ChatLogprob(text, logprob));
    }
    content.push_back(std::move(row));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json CompletionLogprobs(const std::vector<ApiLogprob>& logprobs) {
  Json result = {{"tokens", Json::array()},
                 {"token_logprobs", Json::array()},
                 {"top_logprobs", Json::array()},
                 {"text_offset", Json::array()}};
  for (const ApiLogprob& entry : logprobs) {
    Json top = Json::object();
    // If several tokens have the same text, the most likely one is kept.
    for (const auto& [text, logprob] : entry.top) top.emplace(text, logprob);
    result["tokens"].push_back(entry.text);
    result["token_logprobs"].push_back(entry.logprob);
    result["top_logprobs"].push_back(std::move(top));
    result["text_offset"].push_back(entry.text_offset);
  }
  return result;
}

template <class Value>
uint64_t Sum(absl::Span<const GenerateReport> reports, Value value) {
  uint64_t sum = 0;
  for (const GenerateReport& report : reports) sum += report.*value;
  return sum;
}

}  // namespace

Json UsageJson(absl::Span<const GenerateReport> reports, ReuseNumbers reuse) {
  const uint64_t prompt = Sum(reports, &GenerateReport::prompt_tokens);
  const uint64_t generated = Sum(reports, &GenerateReport::generated_tokens);
  Json usage = {{"prompt_tokens", prompt},
                {"completion_tokens", generated},
                {"total_tokens", prompt + generated}};
  if (reuse == ReuseNumbers::kShow) {
    usage["prompt_tokens_details"] = {
        {"cached_tokens", Sum(reports, &GenerateReport::reused_tokens)}};
  }
  return usage;
}

Json PagodaJson(absl::Span<const GenerateReport> reports, ReuseNumbers reuse) {
  absl::Duration first = absl::InfiniteDuration();
  absl::Duration total;
  absl::Duration queued;
  for (const GenerateReport& report : reports) {
    first = std::min(first, report.time_to_first_token);
    total = std::max(total, report.total_time);
    queued = std::max(queued, report.queue_time);
  }
  Json numbers = {{"time_to_first_token_seconds", absl::ToDoubleSeconds(first)},
                  {"queue_seconds", absl::ToDoubleSeconds(queued)},
                  {"total_seconds", absl::ToDoubleSeconds(total)},
                  {"tokens_per_second", TokensPerSecond(reports)}};
  if (reuse == ReuseNumbers::kShow) {
    numbers["reused_tokens"] = Sum(reports, &GenerateReport::reused_tokens);
    numbers["reused_lower_tokens"] = Sum(reports, &GenerateReport::reused_lower_tokens);
  }
  Json scores = Json::array();
  for (const GenerateReport& report : reports) {
    for (const float score : report.beam_scores) scores.push_back(score);
  }
  if (!scores.empty()) numbers["beam_scores"] = std::move(scores);
  numbers["preemptions"] = Sum(reports, &GenerateReport::preemptions);
  numbers["drafted_tokens"] = Sum(reports, &GenerateReport::drafted_tokens);
  numbers["accepted_draft_tokens"] = Sum(reports, &GenerateReport::accepted_draft_tokens);
  return numbers;
}

ApiAnswer::ApiAnswer(Kind kind, std::string model, TokenIds ids, ReuseNumbers reuse,
                     absl::Time created)
    : kind_(kind),
      model_(std::move(model)),
      ids_(ids),
      reuse_(reuse),
      id_(NewId(kind)),
      created_(absl::ToUnixSeconds(created)) {}

Json ApiAnswer::Frame(const char* object) const {
  return {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_}};
}

const char* ApiAnswer::ChunkName() const {
  return kind_ == Kind::kChat ? "chat.completion.chunk" : "text_completion";
}

Json ApiAnswer::LogprobsJson(const ChoicePiece& piece) const {
  if (piece.logprobs.empty()) return nullptr;
  return kind_ == Kind::kChat ? ChatLogprobs(piece.logprobs) : CompletionLogprobs(piece.logprobs);
}

Json ApiAnswer::Choice(const ChoicePiece& piece) const {
  Json choice = {{"index", piece.choice}};
  choice["logprobs"] = LogprobsJson(piece);
  choice["finish_reason"] = piece.finish_reason != nullptr ? Json(piece.finish_reason) : Json();
  if (ids_ == TokenIds::kShow) choice["token_ids"] = piece.tokens;
  return choice;
}

Json ApiAnswer::Whole(absl::Span<const ChoicePiece> choices,
                      absl::Span<const GenerateReport> reports) const {
  Json answer = Frame(kind_ == Kind::kChat ? "chat.completion" : "text_completion");
  answer["choices"] = Json::array();
  for (const ChoicePiece& piece : choices) {
    Json choice = Choice(piece);
    if (kind_ == Kind::kChat) {
      choice["message"] = {{"role", "assistant"}, {"content", piece.text}, {"refusal", nullptr}};
    } else {
      choice["text"] = piece.text;
    }
    answer["choices"].push_back(std::move(choice));
  }
  answer["usage"] = UsageJson(reports, reuse_);
  answer["pagoda"] = Pagoda(reports);
  return answer;
}

Json ApiAnswer::Beginning(uint32_t choice) const {
  Json chunk = Frame(ChunkName());
  chunk["choices"] = {{{"index", choice},
                       {"delta", {{"role", "assistant"}, {"content", ""}}},
                       {"logprobs", nullptr},
                       {"finish_reason", nullptr}}};
  return chunk;
}

Json ApiAnswer::Chunk(const ChoicePiece& piece) const {
  Json chunk = Frame(ChunkName());
  Json choice = Choice(piece);
  if (kind_ == Kind::kChat) {
    choice["delta"] = piece.text.empty() ? Json::object() : Json({{"content", piece.text}});
  } else {
    choice["text"] = piece.text;
  }
  chunk["choices"] = Json::array({std::move(choice)});
  return chunk;
}

Json ApiAnswer::UsageChunk(absl::Span<const GenerateReport> reports) const {
  Json chunk = Frame(ChunkName());
  chunk["choices"] = Json::array();
  chunk["usage"] = UsageJson(reports, reuse_);
  chunk["pagoda"] = Pagoda(reports);
  return chunk;
}

}  // namespace pagoda::server

#include "engine/serve/prompt/answerer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "clients/command_line/terminal/format.h"

namespace pagoda {
namespace {

// How often AnswerWatch::on_prompt is called.
constexpr absl::Duration kPromptInterval = absl::Milliseconds(100);
// An answer that was stopped ends with its next token. If none comes in so many intervals, for
// example because the daemon is away, it is cancelled.
constexpr int kMostIntervalsToStop = 20;

// The prompt tokens that have gone through the engine, or were found in the cache.
uint64_t PromptTokensOf(const EngineStats& stats) {
  return stats.computed_tokens + stats.reused_tokens;
}

}  // namespace

absl::StatusOr<ModelPrompt> Answerer::ReadText(const std::string& words) const {
  return EncodeText(words, text_, engine_.model());
}

absl::StatusOr<ModelPrompt> Answerer::ReadConversation(
    absl::Span<const ChatMessage> messages) const {
  return EncodeConversation({.messages = messages}, text_, engine_.model(),
                            absl::ToCivilSecond(absl::Now(), absl::LocalTimeZone()));
}

absl::StatusOr<PromptAnswer> Answerer::Answer(GenerateRequest request, const AnswerWatch& watch) {
  const uint64_t prompt_tokens = request.prompt.size();
  if (prompt_tokens >= context_) {
    return MakeError(Reason::kInvalidPrompt,
                     absl::StrCat("the prompt has ", FormatCounted(prompt_tokens, "token"),
                                  ", the context ", FormatCount(context_),
                                  ": it has no room for an answer (--context of --local, up to the "
                                  "model's own limit)"));
  }
  request.max_new_tokens =
      std::min(request.max_new_tokens, static_cast<uint32_t>(context_ - prompt_tokens));
  const auto generation =
      std::make_shared<AnswerOutput>(text_.tokenizer.ok() ? text_.tokenizer->get() : nullptr,
                                     /*logprobs=*/false, std::vector<std::string>());
  const uint64_t before = PromptTokensOf(engine_.Stats());
  SetRunning(generation);
  // A refusal also ends the generation, with its error.
  generation->Submit(engine_, std::move(request)).IgnoreError();
  PromptAnswer answer;
  AnswerOutput::Round round;
  int silent_intervals = 0;  // Since the stop.
  while (!round.ended) {
    round = generation->Take(kPromptInterval);
    if (generation->is_stopping() && ++silent_intervals == kMostIntervalsToStop) {
      generation->Cancel();
    }
    for (const ChoicePiece& piece : round.pieces) {
      answer.text += piece.text;
      for (const TokenId token : piece.tokens) {
        answer.tokens.push_back(token);
        if (watch.on_token) watch.on_token(token, piece.text);
      }
    }
    if (!answer.tokens.empty() || round.ended || !watch.on_prompt) continue;
    watch.on_prompt(std::min(prompt_tokens, PromptTokensOf(engine_.Stats()) - before));
  }
  SetRunning(nullptr);
  answer.is_stopped = generation->is_stopping();
  if (round.status.ok()) {
    answer.report = generation->Reports().front();
  } else if (!answer.is_stopped || !absl::IsCancelled(round.status)) {
    return round.status;
  }
  return answer;
}

bool Answerer::Stop() {
  absl::MutexLock lock(&mutex_);
  if (running_ == nullptr) return false;
  running_->Stop();
  return true;
}

void Answerer::SetRunning(std::shared_ptr<AnswerOutput> generation) {
  absl::MutexLock lock(&mutex_);
  running_ = std::move(generation);
}

}  // namespace pagoda

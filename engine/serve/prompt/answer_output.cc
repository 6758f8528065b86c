#include "engine/serve/prompt/answer_output.h"

#include <utility>

namespace pagoda {

absl::Status AnswerOutput::Submit(Generator& engine, GenerateRequest request) {
  auto texts = std::make_shared<std::vector<ChoiceText>>();  // Used by this request's callbacks.
  for (uint32_t i = 0; i < request.num_samples; ++i) {
    texts->emplace_back(tokenizer_, ChoiceText::Options{.choice = choices_++,
                                                        .max_tokens = request.max_new_tokens,
                                                        .stop_tokens = request.stop_tokens,
                                                        .stop = stop_,
                                                        .logprobs = logprobs_});
  }
  size_t index = 0;
  {
    absl::MutexLock lock(&mutex_);
    index = reports_.size();
    reports_.emplace_back();
    ++open_requests_;
  }
  const std::shared_ptr<AnswerOutput> self = shared_from_this();
  request.cancelled = [self] { return self->IsUnwanted(); };
  // A beam search has no such end. With stop strings the engine refuses it.
  if (!stop_.empty() || !request.is_beam_search()) {
    request.ends_sample = [self, texts](const GeneratedToken& token) {
      return self->is_stopping() || (*texts)[token.sample].stopped();
    };
  }
  const auto on_token = [self, texts](const GeneratedToken& token) {
    self->Add((*texts)[token.sample].Add(token));
    return true;
  };
  const auto on_end = [self, index](absl::StatusOr<GenerateReport> report) {
    self->End(index, std::move(report));
  };
  absl::Status status = engine.Submit(std::move(request), on_token, on_end);
  if (!status.ok()) End(index, status);
  return status;
}

void AnswerOutput::Add(ChoicePiece piece) {
  begun_.store(true, std::memory_order_relaxed);
  absl::MutexLock lock(&mutex_);
  pieces_.push_back(std::move(piece));
}

void AnswerOutput::End(size_t index, absl::StatusOr<GenerateReport> report) {
  // One failed request ends them all.
  if (!report.ok()) Cancel();
  absl::MutexLock lock(&mutex_);
  --open_requests_;
  if (report.ok()) {
    reports_[index] = *std::move(report);
  } else {
    status_.Update(report.status());
  }
}

AnswerOutput::Round AnswerOutput::Take(absl::Duration time) {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(this, &AnswerOutput::HasNews), time);
  Round round{.ended = open_requests_ == 0, .status = status_};
  round.pieces.swap(pieces_);
  return round;
}

std::vector<GenerateReport> AnswerOutput::Reports() const {
  absl::MutexLock lock(&mutex_);
  return reports_;
}

}  // namespace pagoda

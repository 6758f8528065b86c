#include "tests/engine/schedule/scheduler_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "absl/time/clock.h"

namespace pagoda {

absl::StatusOr<BatchResult> WatchedClient::Execute(absl::Span<const Operation> operations,
                                                   StepRange steps) {
  if (!failure_.ok()) return failure_;
  ++batches_;
  for (const Operation& operation : operations) {
    if (std::holds_alternative<QueryCapacity>(operation)) ++capacity_queries_;
    if (std::holds_alternative<MatchPrefix>(operation)) ++match_queries_;
  }
  return client_->Execute(operations, steps);
}

SchedulerWorld::SchedulerWorld(Setting setting)
    : windows_(setting.windows),
      period_(setting.period),
      no_numbers_at_(setting.no_numbers_at),
      all_are_none_(setting.all_are_none),
      time_per_token_(setting.time_per_token),
      draw_(setting.draw),
      cache_(ArithmeticModel::Spec(windows_, kTokensPerBlock), setting.blocks, setting.before_copy,
             std::move(setting.tenants)),
      client_(cache_.OpenClient()),
      model_(client_, windows_, kTokensPerBlock, period_),
      scheduler_(setting.options, &client_, windows_,
                 [this](const ModelInput& input) { return ForwardWithDraws(input); }) {}

absl::StatusOr<ModelOutput> SchedulerWorld::ForwardWithDraws(const ModelInput& input) {
  const absl::StatusOr<absl::Span<const float>> logits = Forward(input);
  if (!logits.ok()) return logits.status();
  if (draw_ == nullptr) return ModelOutput(*logits);
  EXPECT_EQ(input.draws.size(), input.logit_rows.size());
  drawn_.assign(input.draws.size(), kNotDrawn);
  undrawn_logits_.assign(logits->begin(), logits->end());
  for (size_t row = 0; row < drawn_.size(); ++row) {
    if (input.draws[row].kind != TokenDraw::Kind::kToken) continue;
    constexpr size_t kVocabSize = ArithmeticModel::kVocabSize;
    drawn_[row] = draw_(input.draws[row], logits->subspan(row * kVocabSize, kVocabSize));
    std::fill_n(undrawn_logits_.begin() + static_cast<ptrdiff_t>(row * kVocabSize), kVocabSize,
                std::numeric_limits<float>::quiet_NaN());
  }
  ModelOutput output(undrawn_logits_);
  output.tokens = drawn_;
  return output;
}

absl::StatusOr<absl::Span<const float>> SchedulerWorld::Forward(const ModelInput& input) {
  absl::SleepFor(time_per_token_ * static_cast<int64_t>(input.tokens.size()));
  absl::StatusOr<absl::Span<const float>> logits = model_.Forward(input);
  if (!logits.ok() || !no_numbers_at_.has_value()) return logits;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr size_t kVocabSize = ArithmeticModel::kVocabSize;
  spoilt_logits_.assign(logits->begin(), logits->end());
  for (size_t row = 0; row < input.logit_rows.size(); ++row) {
    if (input.positions[input.logit_rows[row]] != *no_numbers_at_) continue;
    const auto begin = spoilt_logits_.begin() + static_cast<ptrdiff_t>(row * kVocabSize);
    if (all_are_none_) {
      std::fill_n(begin, kVocabSize, kNan);
    } else {
      begin[static_cast<ptrdiff_t>(spoilt_++ * 7 % kVocabSize)] = kNan;
    }
  }
  return spoilt_logits_;
}

std::shared_ptr<ActiveRequest> Arrived(const GenerateRequest& request, TokenCallback on_token,
                                       EndCallback on_end) {
  auto active = std::make_shared<ActiveRequest>();
  active->request = request;
  active->on_token = std::move(on_token);
  active->on_end = std::move(on_end);
  active->arrival = SteadyNow();
  return active;
}

SchedulerWorld::Outcome& SchedulerWorld::Add(const GenerateRequest& request,
                                             Preparation preparation) {
  outcomes_.push_back(std::make_unique<Outcome>());
  Outcome& outcome = *outcomes_.back();
  outcome.samples.resize(request.num_samples);
  const std::shared_ptr<ActiveRequest> active = Arrived(
      request,
      [&outcome](const GeneratedToken& token) {
        EXPECT_FALSE(outcome.ended);
        outcome.samples[token.sample].push_back(token.token);
        return true;
      },
      [this, &outcome](absl::StatusOr<GenerateReport> report) {
        EXPECT_FALSE(outcome.ended) << "an end comes once";
        outcome.ended = true;
        outcome.report = std::move(report);
        outcome.ended_in_step = steps_;
      });
  active->is_prepared = preparation == Preparation::kEnded;
  outcome.request = active;
  scheduler_.Add(active);
  return outcome;
}

void SchedulerWorld::RunUntilIdle() {
  while (!scheduler_.idle()) {
    ASSERT_LT(++steps_, 200'000u) << "the scheduler gets on";
    if (scheduler_.Step() == Scheduler::Progress::kNone) absl::SleepFor(absl::Milliseconds(1));
    scheduler_.ReportEnds();
    between_steps_();
  }
}

void SchedulerWorld::RunSteps(int count) {
  for (int i = 0; i < count && !scheduler_.idle(); ++i) {
    ++steps_;
    scheduler_.Step();
    scheduler_.ReportEnds();
    between_steps_();
  }
}

void SchedulerWorld::ExpectSoloAnswer(const GenerateRequest& request, const Outcome& outcome) {
  ASSERT_TRUE(outcome.ended);
  ASSERT_TRUE(outcome.report.ok()) << outcome.report.status();
  EXPECT_EQ(outcome.samples, ArithmeticModel::ExpectedAnswer(request, windows_, period_));
}

void SchedulerWorld::ExpectSoloAnswers(const std::vector<GenerateRequest>& requests) {
  std::vector<const Outcome*> outcomes;
  for (const GenerateRequest& request : requests) outcomes.push_back(&Add(request));
  RunUntilIdle();
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "request " << i);
    ExpectSoloAnswer(requests[i], *outcomes[i]);
  }
  EXPECT_TRUE(cache_.NothingHeld());
  EXPECT_EQ(model_.unwritten_reads(), 0u);
}

std::vector<TokenId> RandomTokens(std::mt19937_64& random, size_t count, uint32_t vocabulary) {
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % vocabulary);
  return tokens;
}

GenerateRequest RandomRequest(uint64_t seed, size_t prompt_tokens, uint32_t max_new_tokens) {
  std::mt19937_64 random(seed);
  return {.prompt = RandomTokens(random, prompt_tokens, ArithmeticModel::kVocabSize),
          .max_new_tokens = max_new_tokens};
}

}  // namespace pagoda

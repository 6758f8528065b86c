#include "engine/serve/generate/generate_stream.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "wire/errors.h"
#include "wire/vocabulary.h"

namespace pagoda::server {
namespace {

GenerateRequest RequestFromProto(const v1::GenerateRequest& proto, GeneratePrompt prompt,
                                 NamespaceKey name_space, std::string tenant) {
  GenerateRequest request{.prompt = std::move(prompt.tokens),
                          .max_new_tokens = proto.max_new_tokens(),
                          .stop_tokens = std::move(prompt.stop_tokens),
                          .name_space = std::move(name_space),
                          .adapter = proto.adapter(),
                          .num_samples = std::max(1u, proto.num_samples()),
                          .max_draft_tokens = proto.max_draft_tokens(),
                          .beam_width = std::max(1u, proto.beam_width()),
                          .early_stopping = proto.early_stopping(),
                          .tenant = std::move(tenant),
                          .fetch_source = proto.source().address(),
                          .grammar = std::move(prompt.grammar)};
  constexpr uint32_t kMostPriority = std::numeric_limits<int32_t>::max();
  request.priority = static_cast<int32_t>(std::min(proto.priority(), kMostPriority));
  if (proto.has_length_penalty()) request.length_penalty = proto.length_penalty();
  SamplingParams& sampling = request.sampling;
  if (proto.has_temperature()) sampling.temperature = proto.temperature();
  if (proto.has_top_k()) sampling.top_k = proto.top_k();
  if (proto.has_top_p()) sampling.top_p = proto.top_p();
  if (proto.has_seed()) sampling.seed = proto.seed();
  if (proto.has_repetition_penalty()) sampling.repetition_penalty = proto.repetition_penalty();
  if (proto.has_top_logprobs()) sampling.top_logprobs = proto.top_logprobs();
  return request;
}

void TokenToProto(const GeneratedToken& token, v1::GeneratedToken* out) {
  out->set_sample(token.sample);
  out->set_token(token.token);
  out->set_logprob(token.logprob);
  for (const TokenLogprob& row : token.top_logprobs) {
    v1::TokenLogprob* top = out->add_top_logprobs();
    top->set_token(row.token);
    top->set_logprob(row.logprob);
  }
}

v1::FinishReason FinishReasonToProto(FinishReason reason) {
  return reason == FinishReason::kLength ? v1::FINISH_REASON_LENGTH : v1::FINISH_REASON_STOP_TOKEN;
}

void ReportToProto(const GenerateReport& report, ReuseNumbers reuse, v1::GenerateReport* out) {
  out->set_finish_reason(FinishReasonToProto(report.finish_reasons.front()));
  for (const FinishReason reason : report.finish_reasons) {
    out->add_finish_reasons(FinishReasonToProto(reason));
  }
  out->set_prompt_tokens(report.prompt_tokens);
  if (reuse == ReuseNumbers::kShow) {
    out->set_reused_tokens(report.reused_tokens);
    out->set_reused_lower_tokens(report.reused_lower_tokens);
  }
  out->set_generated_tokens(report.generated_tokens);
  out->set_preemptions(report.preemptions);
  out->set_drafted_tokens(report.drafted_tokens);
  out->set_accepted_draft_tokens(report.accepted_draft_tokens);
  *out->mutable_time_to_first_token() = DurationToProto(report.time_to_first_token);
  *out->mutable_total_time() = DurationToProto(report.total_time);
  *out->mutable_queue_time() = DurationToProto(report.queue_time);
  out->set_tokens_per_second(report.tokens_per_second());
  out->mutable_beam_scores()->Add(report.beam_scores.begin(), report.beam_scores.end());
}

}  // namespace

GenerateStream* GenerateStream::Open(const v1::GenerateRequest& request, ReuseNumbers reuse,
                                     std::function<absl::Status()> check_caller) {
  const std::shared_ptr<GenerateStream> stream(new GenerateStream(reuse, std::move(check_caller)));
  stream->self_ = stream;
  stream->detailed_ = request.num_samples() > 1 || request.has_top_logprobs();
  // The answer begins now, so a generation does not wait for its client (ConnectionLimit).
  stream->StartSendInitialMetadata();
  return stream.get();
}

void GenerateStream::Submit(Generator* engine, const v1::GenerateRequest& request,
                            GeneratePrompt prompt, NamespaceKey name_space, std::string tenant,
                            std::string bearer) {
  // The call keeps this object until it has ended.
  const std::shared_ptr<GenerateStream> stream = self_;
  if (prompt.tokenizer != nullptr) decoder_ = std::make_unique<StreamDecoder>(prompt.tokenizer);
  GenerateRequest wanted =
      RequestFromProto(request, std::move(prompt), std::move(name_space), std::move(tenant));
  wanted.token = std::move(bearer);
  wanted.arrival = arrival_;
  // The callbacks keep the stream alive as long as the engine keeps them.
  wanted.cancelled = [stream] { return stream->Cancelled(); };
  const absl::Status status = engine->Submit(
      std::move(wanted), [stream](const GeneratedToken& token) { return stream->Add(token); },
      [stream](const absl::StatusOr<GenerateReport>& report) { stream->End(report); });
  if (!status.ok()) stream->End(status);
}

bool GenerateStream::Cancelled() {
  const absl::Status known = check_caller_();
  absl::MutexLock lock(&mutex_);
  if (!known.ok() && !cancelled_) {
    revoked_ = known;
    cancelled_ = true;
  }
  return cancelled_;
}

bool GenerateStream::Add(const GeneratedToken& token) {
  std::string text;
  if (decoder_ != nullptr && token.sample == 0) text = decoder_->Add(token.token);
  {
    absl::MutexLock lock(&mutex_);
    if (cancelled_) return false;
    if (token.sample == 0) pending_.add_tokens(token.token);
    pending_.mutable_text()->append(text);
    if (detailed_) TokenToProto(token, pending_.add_generated());
  }
  Advance();
  return true;
}

void GenerateStream::End(const absl::StatusOr<GenerateReport>& report) {
  const std::string text = decoder_ == nullptr ? std::string() : decoder_->Finish();
  {
    absl::MutexLock lock(&mutex_);
    ended_ = true;
    status_ = report.status();
    pending_.mutable_text()->append(text);
    if (report.ok()) ReportToProto(*report, reuse_, pending_.mutable_report());
  }
  Advance();
}

void GenerateStream::Advance() {
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    if (writing_ || finished_) return;
    const bool something = pending_.tokens_size() > 0 || pending_.generated_size() > 0 ||
                           !pending_.text().empty() || pending_.has_report();
    if (something && !cancelled_) {
      response_.Clear();
      response_.Swap(&pending_);
      writing_ = true;
      StartWrite(&response_);
      return;
    }
    if (!ended_) return;
    finished_ = true;
    status = cancelled_ ? absl::CancelledError("the client is gone") : status_;
    if (!revoked_.ok()) status = revoked_;
  }
  // Not under the lock, because the call can end before Finish returns.
  Finish(ToGrpcStatus(status));
}

void GenerateStream::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    cancelled_ = cancelled_ || !ok;
  }
  Advance();
}

void GenerateStream::OnCancel() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
}

void GenerateStream::OnDone() { const std::shared_ptr<GenerateStream> last = std::move(self_); }

}  // namespace pagoda::server

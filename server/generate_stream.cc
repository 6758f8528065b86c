#include "server/generate_stream.h"

#include <utility>

#include "absl/time/clock.h"
#include "server/error_map.h"
#include "server/translate.h"

namespace pagoda::server {
namespace {

GenerateRequest RequestFromProto(const v1::GenerateRequest& proto, NamespaceKey name_space) {
  return {.prompt = {proto.prompt_tokens().begin(), proto.prompt_tokens().end()},
          .max_new_tokens = proto.max_new_tokens(),
          .stop_tokens = {proto.stop_tokens().begin(), proto.stop_tokens().end()},
          .name_space = std::move(name_space)};
}

v1::FinishReason FinishReasonToProto(FinishReason reason) {
  return reason == FinishReason::kLength ? v1::FINISH_REASON_LENGTH : v1::FINISH_REASON_STOP_TOKEN;
}

void ReportToProto(const GenerateReport& report, v1::GenerateReport* out) {
  out->set_finish_reason(FinishReasonToProto(report.finish_reason));
  out->set_prompt_tokens(report.prompt_tokens);
  out->set_reused_tokens(report.reused_tokens);
  out->set_generated_tokens(report.generated_tokens);
  *out->mutable_time_to_first_token() = DurationToProto(report.time_to_first_token);
  *out->mutable_total_time() = DurationToProto(report.total_time);
  *out->mutable_queue_time() = DurationToProto(report.queue_time);
}

}  // namespace

GenerateStream* GenerateStream::Start(Engine* engine, WorkQueue* queue,
                                      const v1::GenerateRequest& request, NamespaceKey name_space) {
  const std::shared_ptr<GenerateStream> stream(new GenerateStream);
  stream->self_ = stream;
  GenerateRequest wanted = RequestFromProto(request, std::move(name_space));
  // The job keeps the stream alive as long as it keeps this.
  wanted.cancelled = [raw = stream.get()] { return raw->Cancelled(); };
  // Before it waits: a prompt in the queue is no longer than the model allows.
  absl::Status status = engine->Check(wanted);
  if (status.ok()) {
    status = queue->Push([stream, engine, wanted = std::move(wanted), now = absl::Now()] {
      stream->Run(*engine, wanted, now);
    });
  }
  if (!status.ok()) stream->End(status);
  return stream.get();
}

void GenerateStream::Run(Engine& engine, const GenerateRequest& request, absl::Time queued) {
  const absl::Duration waited = absl::Now() - queued;
  absl::StatusOr<GenerateReport> report = engine.Generate(
      request, [this](TokenId token, absl::Span<const float>) { return Add(token); });
  if (report.ok()) {
    // The engine's own clock started when the queue let the request through.
    report->queue_time += waited;
    report->time_to_first_token += waited;
    report->total_time += waited;
  }
  End(report);
}

bool GenerateStream::Cancelled() {
  absl::MutexLock lock(&mutex_);
  return cancelled_;
}

bool GenerateStream::Add(TokenId token) {
  {
    absl::MutexLock lock(&mutex_);
    if (cancelled_) return false;
    pending_.add_tokens(token);
  }
  Advance();
  return true;
}

void GenerateStream::End(const absl::StatusOr<GenerateReport>& report) {
  {
    absl::MutexLock lock(&mutex_);
    ended_ = true;
    status_ = report.status();
    if (report.ok()) ReportToProto(*report, pending_.mutable_report());
  }
  Advance();
}

void GenerateStream::Advance() {
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    if (writing_ || finished_) return;
    const bool something = pending_.tokens_size() > 0 || pending_.has_report();
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
  }
  // Not under the lock: the end of the call may come before Finish returns.
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

// How samples and requests leave the scheduler.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/schedule/scheduler.h"

namespace pagoda {

// Leaves with the next batch.
void Scheduler::Retire(Sample* sample, Then then) {
  const auto it = running_.Find(sample);
  if (it == running_.end()) return;
  if (then == Then::kReturn && sample->is_beam()) return PauseBeams(sample->request);
  sample->ended = then == Then::kEnd;
  closing_.push_back({running_.Remove(it), then});
}

void Scheduler::Preempt(Sample* sample) {
  PAGODA_CHECK(sample != nullptr, "a sample runs");
  ++stats_.preemptions;
  ++sample->request->report.preemptions;
  Retire(sample, Then::kReturn);
}

void Scheduler::EndRequest(const std::shared_ptr<ActiveRequest>& request,
                           const absl::Status& status) {
  if (std::exchange(request->ending, true)) return;
  request->status = status;
  std::erase_if(probes_, [&](const Probe& probe) { return probe.sample->request == request; });
  for (Sample* sample : running_.Of(*request)) Retire(sample, Then::kEnd);
  for (Closing& closing : closing_) {
    if (closing.sample->request == request) closing.then = Then::kEnd;
  }
  for (std::unique_ptr<Sample>& sample : waiting_.RemoveAll(*request)) {
    fetches_.Leave(sample->name());
    closing_.push_back({std::move(sample), Then::kEnd});
  }
}

void Scheduler::Finish(std::unique_ptr<Sample> sample) {
  const std::shared_ptr<ActiveRequest> request = sample->request;
  sample.reset();
  if (--request->open_samples > 0) return;
  --(request->admitted ? stats_.running_requests : stats_.waiting_requests);
  request->place = {};
  if (request->is_prepared) shares_.Leave(request->request.tenant);
  request->report.total_time = Since(request->arrival);
  ended_.push_back(request);
}

void Scheduler::ReportEnds() {
  for (const std::shared_ptr<ActiveRequest>& request : std::exchange(ended_, {})) {
    if (request->status.ok()) {
      request->on_end(std::move(request->report));
    } else {
      request->on_end(request->status);
    }
  }
}

void Scheduler::EndWaiting(absl::FunctionRef<absl::Status(const Sample&)> check) {
  std::vector<std::pair<std::shared_ptr<ActiveRequest>, absl::Status>> refused;
  waiting_.ForEach([&](const Sample& sample) {
    absl::Status status = check(sample);
    if (!status.ok()) refused.emplace_back(sample.request, std::move(status));
  });
  for (const auto& [request, status] : refused) EndRequest(request, status);
}

void Scheduler::EndAll(const absl::Status& status) {
  std::vector<std::shared_ptr<ActiveRequest>> requests;
  for (const auto& sample : running_) requests.push_back(sample->request);
  for (const auto& closing : closing_) {
    if (closing.then == Then::kReturn) requests.push_back(closing.sample->request);
  }
  waiting_.ForEach([&](const Sample& sample) {
    if (sample.request->is_prepared) requests.push_back(sample.request);
  });
  for (const auto& request : requests) EndRequest(request, status);
}

// The client failed, and its state is unknown. Complete answers stay valid.
void Scheduler::FailAll(const absl::Status& status) {
  EndAll(status);
  probes_.clear();
  shortened_.clear();
  for (Closing& closing : closing_) {
    if (closing.sample->run.was_opened()) leftovers_.push_back(closing.sample->run.id());
    closing.sample->run.Forget();
  }
  std::vector<Operation> frees;
  for (const SequenceId leftover : leftovers_) frees.push_back(FreeSequence{leftover});
  if (frees.empty() || client_->Execute(frees).ok()) leftovers_.clear();
  FinishClosing();
}

// Finishes the samples whose sequences have been closed. Others can have been retired since.
void Scheduler::FinishClosing() {
  for (Closing& closed : std::exchange(closing_, {})) {
    if (closed.sample->run.is_open()) {
      closing_.push_back(std::move(closed));
      continue;
    }
    if (!closed.sample->refused) {
      capacity_changed_ = true;
      quotas_.NoteChange(closed.sample->owner());
    }
    if (closed.then == Then::kReturn) {
      waiting_.Add(std::move(closed.sample));
    } else {
      Finish(std::move(closed.sample));
    }
  }
}

void Scheduler::Shutdown(const absl::Status& status) {
  EndAll(status);
  EndWaiting([&](const Sample&) { return status; });
  resting_ = {};
  StepBatch batch;
  AddClosings(Which::kAll, batch);
  if (absl::Status ran = RunBatch(batch); !ran.ok()) return FailAll(ran);
  FinishClosing();
}

void Scheduler::Attach(CacheClient* client) {
  client_ = client;
  leftovers_.clear();
  probes_.clear();
  shortened_.clear();
  quotas_.Forget();
  fetches_.Attach(client_->info());
  capacity_changed_ = true;
  completed_ = Ticket();
  while (!running_.empty()) Retire(running_.back().get(), Then::kReturn);
  for (Closing& closing : closing_) {
    closing.sample->run.Forget();
    closing.sample->fork_of = nullptr;
  }
  FinishClosing();
  EndWaiting([&](const Sample& sample) {
    return CheckCapacity(client_->info(), sample.request->request);
  });
}

}  // namespace pagoda

#include "tests/bench/service/service_loads.h"

#include <atomic>
#include <chrono>
#include <utility>

#include "absl/synchronization/blocking_counter.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "pools/types.h"
#include "tests/bench/figure.h"

namespace pagoda::bench {
namespace {

using pagoda::v1::Batch;
using pagoda::v1::ExecuteRequest;
using pagoda::v1::ExecuteResponse;

constexpr int kOperations = 256;
constexpr int kSequences = 256;
constexpr uint32_t kPromptTokens = 100;

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

ExecuteRequest AllocateOne(const pagoda::v1::SessionRef& session) {
  ExecuteRequest request;
  *request.mutable_session() = session;
  request.mutable_batch()->add_operations()->mutable_allocate_blocks()->set_count(1);
  return request;
}

// One of the outstanding calls. It is made again as soon as it is answered.
class OutstandingCall {
 public:
  OutstandingCall(Connection* connection, const pagoda::v1::SessionRef& session,
                  const std::atomic<bool>* stop, absl::BlockingCounter* ended)
      : connection_(connection), request_(AllocateOne(session)), stop_(stop), ended_(ended) {}

  void Start() {
    context_ = std::make_unique<grpc::ClientContext>();
    connection_->ExecuteAsync(context_.get(), &request_, &response_,
                              [this](const grpc::Status& status) { OnAnswer(status); });
  }
  // Valid once `ended` was notified.
  uint64_t answers() const { return answers_; }

 private:
  void OnAnswer(const grpc::Status& status) {
    RequireOk(status, "a call succeeds");
    PAGODA_CHECK(!response_.result().results(0).has_error(), "a block is free");
    ++answers_;
    if (stop_->load(std::memory_order_relaxed)) {
      ended_->DecrementCount();
    } else {
      Start();
    }
  }

  Connection* const connection_;
  const ExecuteRequest request_;
  const std::atomic<bool>* const stop_;
  absl::BlockingCounter* const ended_;
  std::unique_ptr<grpc::ClientContext> context_;
  ExecuteResponse response_;
  uint64_t answers_ = 0;
};

}  // namespace

SessionLoad::SessionLoad(const std::string& endpoint, Target target, Retry retry,
                         const Caller& caller)
    : retry_(retry), stream_(endpoint, target, caller) {
  Batch* batch = request_.mutable_batch();
  for (int i = 0; i < kOperations / 2; ++i) {
    batch->add_operations()->mutable_allocate_blocks()->set_count(1);
  }
  stream_.Call(request_, &response_);
  // From here on, every second operation frees a block of the previous answer.
  const pagoda::v1::BatchResult first = response_.result();
  batch->clear_operations();
  response_.mutable_result()->clear_results();
  for (const pagoda::v1::OperationResult& result : first.results()) {
    batch->add_operations()->mutable_allocate_blocks()->set_count(1);
    batch->add_operations()->mutable_free_blocks();
    *response_.mutable_result()->add_results() = result;
    response_.mutable_result()->add_results();
  }
}

double SessionLoad::Rate(double seconds) {
  const Clock::time_point begin = Clock::now();
  uint64_t operations = 0;
  while (SecondsSince(begin) < seconds) {
    Call();
    operations += kOperations;
  }
  return static_cast<double>(operations) / SecondsSince(begin);
}

void SessionLoad::Call() {
  Batch* batch = request_.mutable_batch();
  for (int i = 0; i < kOperations; i += 2) {
    const std::string& handle = response_.result().results(i).allocate_blocks().blocks();
    batch->mutable_operations(i + 1)->mutable_free_blocks()->set_blocks(
        handle.data(), sizeof(BlockRef));  // A handle begins with the reference.
  }
  request_.set_batch_id(request_.batch_id() + 1);
  if (retry_ == Retry::kOn) batch->set_retry_id(request_.batch_id());
  stream_.Call(request_, &response_);
}

double UnaryMedian(Connection& connection, double seconds) {
  const pagoda::v1::SessionRef session = connection.OpenSession();
  const ExecuteRequest request = AllocateOne(session);
  ExecuteResponse response;
  std::vector<double> microseconds;
  const Clock::time_point begin = Clock::now();
  do {
    const Clock::time_point call = Clock::now();
    connection.Execute(request, &response);
    microseconds.push_back(SecondsSince(call) * 1e6);
    PAGODA_CHECK(!response.result().results(0).has_error(), "a block is free");
  } while (SecondsSince(begin) < seconds);
  connection.CloseSession(session);
  return Percentile(std::move(microseconds), 0.5);
}

std::vector<double> EmptyCallPercentiles(Connection& connection, int calls) {
  ExecuteRequest request;
  *request.mutable_session() = connection.OpenSession();
  ExecuteResponse response;
  std::vector<double> microseconds(calls);
  for (double& one : microseconds) {
    one = 1e6 * Seconds([&] { connection.Execute(request, &response); });
  }
  connection.CloseSession(request.session());
  const double p50 = Percentile(microseconds, 0.5);
  return {p50, Percentile(std::move(microseconds), 0.99)};
}

double EmptyBatchMedian(SessionStream& stream, int calls) {
  pagoda::v1::SessionRequest request;
  pagoda::v1::SessionResponse response;
  std::vector<double> microseconds(calls);
  for (double& one : microseconds) {
    one = 1e6 * Seconds([&] { stream.Call(request, &response); });
  }
  return Percentile(std::move(microseconds), 0.5);
}

double UnaryRate(const std::vector<std::unique_ptr<Connection>>& connections, int outstanding_each,
                 double seconds) {
  std::vector<pagoda::v1::SessionRef> sessions;
  for (const auto& connection : connections) sessions.push_back(connection->OpenSession());
  std::atomic<bool> stop = false;
  const int outstanding = outstanding_each * static_cast<int>(connections.size());
  absl::BlockingCounter ended(outstanding);
  std::vector<std::unique_ptr<OutstandingCall>> calls;
  for (int i = 0; i < outstanding; ++i) {
    const size_t on = static_cast<size_t>(i) % connections.size();
    calls.push_back(
        std::make_unique<OutstandingCall>(connections[on].get(), sessions[on], &stop, &ended));
  }
  const Clock::time_point begin = Clock::now();
  for (const auto& call : calls) call->Start();
  absl::SleepFor(absl::Seconds(seconds));
  stop = true;
  ended.Wait();  // Calls under way still count, so that even a very short measurement has some.
  const double elapsed = SecondsSince(begin);
  uint64_t answers = 0;
  for (const auto& call : calls) answers += call->answers();
  for (size_t i = 0; i < connections.size(); ++i) connections[i]->CloseSession(sessions[i]);
  return static_cast<double>(answers) / elapsed;
}

std::vector<double> DecodeLoad::Percentiles(int steps, absl::Duration pause) {
  AddSequences();
  std::vector<double> microseconds(steps);
  for (double& one : microseconds) {
    if (pause > absl::ZeroDuration()) absl::SleepFor(pause);
    one = Step() * 1e6;
  }
  FreeSequences();
  const double p50 = Percentile(microseconds, 0.5);
  return {p50, Percentile(std::move(microseconds), 0.99)};
}

void DecodeLoad::AddSequences() {
  pagoda::v1::SessionRequest add;
  request_.Clear();
  for (int i = 0; i < kSequences; ++i) {
    auto* sequence = add.mutable_batch()->add_operations()->mutable_add_sequence();
    sequence->set_sequence_id(first_sequence_ + i);
    for (uint32_t t = 0; t < kPromptTokens; ++t) sequence->add_tokens(random_());
    if (form_ == StepForm::kPacked) continue;
    auto* append = request_.mutable_batch()->add_operations()->mutable_append_tokens();
    append->set_sequence_id(first_sequence_ + i);
    append->add_tokens(0);
  }
  if (form_ == StepForm::kPacked) {
    auto* step = request_.mutable_batch()->add_operations()->mutable_append_step();
    for (int i = 0; i < kSequences; ++i) step->add_sequence_ids(first_sequence_ + i);
    step->mutable_tokens()->Resize(kSequences, 0);
    step->mutable_computed_tokens()->Resize(kSequences, 0);
  }
  stream_.Call(add, &response_);
  tokens_ = kPromptTokens;
}

void DecodeLoad::NameTokens(Batch& batch) {
  for (int i = 0; i < kSequences; ++i) {
    if (form_ == StepForm::kPacked) {
      auto* step = batch.mutable_operations(0)->mutable_append_step();
      step->set_tokens(i, random_());
      step->set_computed_tokens(i, tokens_);
    } else {
      auto* append = batch.mutable_operations(i)->mutable_append_tokens();
      append->set_tokens(0, random_());
      append->set_computed_tokens(tokens_);
    }
  }
}

double DecodeLoad::Step() {
  Batch* batch = request_.mutable_batch();
  // Like an engine with one step under way: the previous step has ended.
  batch->set_completed_step(step_);
  batch->set_step(++step_);
  NameTokens(*batch);
  ++tokens_;
  return Seconds([&] { stream_.Call(request_, &response_); });
}

void DecodeLoad::FreeSequences() {
  pagoda::v1::SessionRequest free;
  for (int i = 0; i < kSequences; ++i) {
    free.mutable_batch()->add_operations()->mutable_free_sequence()->set_sequence_id(
        first_sequence_ + i);
  }
  free.mutable_batch()->set_step(step_);
  free.mutable_batch()->set_completed_step(step_);
  stream_.Call(free, &response_);
  first_sequence_ += kSequences;
}

}  // namespace pagoda::bench

#include "clients/pagodactl/generate/bench_load.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/thread.h"
#include "clients/command_line/terminal/format.h"
#include "clients/cpp/grpc_cache_client.h"
#include "clients/pagodactl/command/admin_client.h"
#include "grpcpp/client_context.h"
#include "pagoda/v1/cache.grpc.pb.h"
#include "wire/operations.h"
#include "wire/results.h"
#include "wire/vocabulary.h"

namespace pagoda {
namespace {

constexpr char kClientName[] = "pagodactl bench";
constexpr absl::Duration kProgressInterval = absl::Milliseconds(50);

// One thread's connection to the daemon.
class BenchClient {
 public:
  virtual ~BenchClient() = default;
  virtual absl::StatusOr<BatchResult> Execute(const std::vector<Operation>& operations) = 0;
};

// A session without a stream: each batch is a separate call.
class UnaryClient final : public BenchClient {
 public:
  static absl::StatusOr<std::unique_ptr<BenchClient>> Open(const GlobalOptions& globals) {
    const auto channel = ConnectToDaemon(globals);
    if (!channel.ok()) return channel.status();
    auto client = std::make_unique<UnaryClient>(*channel, globals.timeout());
    v1::OpenSessionRequest request;
    request.set_client_name(kClientName);
    request.set_cache(globals.cache);
    v1::OpenSessionResponse response;
    grpc::ClientContext context;
    client->SetDeadline(context);
    const grpc::Status status = client->stub_->OpenSession(&context, request, &response);
    if (!status.ok()) return StatusFromGrpc(status);
    client->session_ = response.session();
    return client;
  }

  UnaryClient(const std::shared_ptr<grpc::Channel>& channel, absl::Duration timeout)
      : stub_(v1::CacheService::NewStub(channel)), timeout_(timeout) {}

  // If this fails, the lease ends the session.
  ~UnaryClient() override {
    if (session_.session_id() == 0) return;
    v1::CloseSessionRequest request;
    *request.mutable_session() = session_;
    v1::CloseSessionResponse response;
    grpc::ClientContext context;
    SetDeadline(context);
    static_cast<void>(stub_->CloseSession(&context, request, &response));
  }

  absl::StatusOr<BatchResult> Execute(const std::vector<Operation>& operations) override {
    v1::ExecuteRequest request;
    *request.mutable_session() = session_;
    *request.mutable_batch() = BatchToProto(operations, {});
    v1::ExecuteResponse response;
    grpc::ClientContext context;
    SetDeadline(context);
    const grpc::Status status = stub_->Execute(&context, request, &response);
    if (!status.ok()) return StatusFromGrpc(status);
    BatchResult result = BatchResultFromProto(response.result());
    if (result.results.size() != operations.size()) {
      return absl::InternalError("the daemon did not answer every operation");
    }
    return result;
  }

 private:
  void SetDeadline(grpc::ClientContext& context) const {
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout_));
  }

  const std::unique_ptr<v1::CacheService::Stub> stub_;
  const absl::Duration timeout_;
  v1::SessionRef session_;
};

class StreamClient final : public BenchClient {
 public:
  static absl::StatusOr<std::unique_ptr<BenchClient>> Open(const GlobalOptions& globals) {
    absl::StatusOr<ClientCredentials> credentials = CredentialsOf(globals.credentials);
    if (!credentials.ok()) return credentials.status();
    auto client = OpenGrpcCacheClient({.endpoint = globals.endpoint,
                                       .client_name = kClientName,
                                       .lease = absl::ZeroDuration(),
                                       .timeout = globals.timeout(),
                                       .credentials = *std::move(credentials),
                                       .cache = globals.cache});
    if (!client.ok()) return client.status();
    return std::make_unique<StreamClient>(*std::move(client));
  }
  explicit StreamClient(std::unique_ptr<CacheClient> client) : client_(std::move(client)) {}

  absl::StatusOr<BatchResult> Execute(const std::vector<Operation>& operations) override {
    return client_->Execute(operations, {});
  }

 private:
  const std::unique_ptr<CacheClient> client_;
};

using OpenClient = absl::StatusOr<std::unique_ptr<BenchClient>> (*)(const GlobalOptions&);

// Allocates `batch` blocks, one per operation, and frees them in the next batch, in a loop.
class BenchThread {
 public:
  BenchThread(std::unique_ptr<BenchClient> client, WindowSize window, uint32_t batch)
      : client_(std::move(client)), window_(window), batch_(batch) {}

  // Runs on a separate thread until `stop` or an error. Holds no blocks at the end.
  void Run(const std::atomic<bool>& stop) {
    while (status_.ok() && (!stop || !held_.empty())) status_ = Step();
  }

  const absl::Status& status() const { return status_; }
  uint64_t operations() const { return operations_; }
  const LatencyHistogram& latencies() const { return latencies_; }

 private:
  absl::Status Step() {
    std::vector<Operation> operations;
    operations.reserve(batch_);
    for (const BlockHandle& block : held_) {
      operations.push_back(FreeBlocks{.window = window_, .blocks = {{block.id, block.generation}}});
    }
    if (held_.empty()) operations.assign(batch_, AllocateBlocks{.window = window_, .count = 1});
    held_.clear();
    const absl::Time sent = absl::Now();
    const absl::StatusOr<BatchResult> batch = client_->Execute(operations);
    if (!batch.ok()) return batch.status();
    latencies_.Add(absl::Now() - sent);
    operations_ += operations.size();
    for (const absl::StatusOr<OperationResult>& result : batch->results) {
      if (!result.ok()) return result.status();
      const auto* allocated = std::get_if<AllocatedBlocks>(&*result);
      if (allocated == nullptr) continue;
      held_.insert(held_.end(), allocated->blocks.begin(), allocated->blocks.end());
    }
    return absl::OkStatus();
  }

  const std::unique_ptr<BenchClient> client_;
  const WindowSize window_;
  const uint32_t batch_;
  std::vector<BlockHandle> held_;
  absl::Status status_;
  uint64_t operations_ = 0;
  LatencyHistogram latencies_;
};

class Bench {
 public:
  Bench(const GlobalOptions& globals, const BenchOptions& options,
        const std::function<bool(absl::Duration)>& on_progress)
      : globals_(globals), options_(options), on_progress_(on_progress) {}

  absl::StatusOr<BenchReport> Run() {
    if (absl::Status status = ChooseWindow(); !status.ok()) return status;
    BenchReport report;
    if (absl::Status status = RunPhase(&UnaryClient::Open, 1, &report.unary); !status.ok()) {
      return status;
    }
    if (stopped_) return report;
    if (absl::Status status = RunPhase(&StreamClient::Open, options_.batch, &report.stream);
        !status.ok()) {
      return status;
    }
    return report;
  }

 private:
  // Chooses the largest window, which usually has the most blocks.
  absl::Status ChooseWindow() {
    absl::StatusOr<AdminClient> admin = AdminClient::Connect(globals_);
    if (!admin.ok()) return admin.status();
    const auto status = admin->Call(&AdminClient::Stub::GetStatus, v1::GetStatusRequest());
    if (!status.ok()) return status.status();
    if (status->windows().empty() || status->windows().rbegin()->tiers().empty()) {
      return absl::InternalError("the daemon's status has no windows or tiers");
    }
    const v1::WindowStatus& window = *status->windows().rbegin();
    const uint64_t needed = uint64_t{options_.batch} * options_.concurrency;
    if (window.tiers(0).free_blocks() < needed) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the load needs ", FormatCounted(needed, "block"), ", but only ",
          FormatCount(window.tiers(0).free_blocks()),
          " are free, so it would evict cached content. Make it smaller with --batch and "
          "--concurrency"));
    }
    window_ = WindowFromProto(window.window_size());
    return absl::OkStatus();
  }

  absl::Status RunPhase(OpenClient open, uint32_t batch, BenchPhase* phase) {
    std::vector<std::unique_ptr<BenchThread>> benches;
    for (uint32_t i = 0; i < options_.concurrency; ++i) {
      absl::StatusOr<std::unique_ptr<BenchClient>> client = open(globals_);
      if (!client.ok()) return client.status();
      benches.push_back(std::make_unique<BenchThread>(*std::move(client), window_, batch));
    }
    std::atomic<bool> stop = false;
    std::vector<Thread> threads;
    absl::Status started;
    const absl::Time begin = absl::Now();
    for (const auto& bench : benches) {
      if (!started.ok()) break;
      started = StartThreads(
          "pagoda-bench", 1, [&stop, bench = bench.get()] { bench->Run(stop); }, &threads);
    }
    const absl::Time end = begin + absl::Seconds(options_.seconds) / 2;
    while (started.ok() && !stopped_ && absl::Now() < end) {
      absl::SleepFor(std::min(kProgressInterval, end - absl::Now()));
      stopped_ = !on_progress_(elapsed_ + (absl::Now() - begin));
    }
    stop = true;
    for (Thread& thread : threads) thread.Join();
    if (!started.ok()) return started;
    phase->elapsed = absl::Now() - begin;
    elapsed_ += phase->elapsed;
    for (const auto& bench : benches) {
      if (!bench->status().ok()) return bench->status();
      phase->operations += bench->operations();
      phase->latencies.Add(bench->latencies());
    }
    return absl::OkStatus();
  }

  const GlobalOptions& globals_;
  const BenchOptions& options_;
  const std::function<bool(absl::Duration)>& on_progress_;
  WindowSize window_ = kFullAttention;
  absl::Duration elapsed_;
  bool stopped_ = false;
};

}  // namespace

absl::StatusOr<BenchReport> RunBench(const GlobalOptions& globals, const BenchOptions& options,
                                     const std::function<bool(absl::Duration)>& on_progress) {
  return Bench(globals, options, on_progress).Run();
}

}  // namespace pagoda

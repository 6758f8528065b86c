#include "engine/engine.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/error.h"
#include "base/thread.h"
#include "engine/basic_cache/basic_cache_client.h"
#include "engine/check_request.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/gpu_self_test.h"
#include "engine/graph_warnings.h"
#include "engine/model/choose_backend.h"
#include "engine/model/kv/contiguous_backend.h"
#include "engine/model/kv/kv_pools.h"
#include "engine/model/kv/token_flat_layers.h"
#include "engine/model/layers/transformer.h"
#include "engine/model/weights/load_watch.h"
#include "engine/request/long_context.h"
#include "kernels/execution/thread_pool.h"

namespace pagoda {
namespace {

// How often the engine polls for capacity that others hold.
constexpr absl::Duration kCapacityPause = absl::Milliseconds(5);
// How often the engine polls fetches from disk.
constexpr absl::Duration kFetchPause = absl::Milliseconds(1);

// Requests number their sequences from 1, and never get this far.
constexpr uint64_t kScratchSequence = uint64_t{1} << 63;

// The KV of one model is useless to another one of the same shape.
absl::Status CheckCache(const CacheInfo& cache, const std::string& fingerprint) {
  if (cache.model_fingerprint == fingerprint) return absl::OkStatus();
  return MakeError(
      Reason::kModelMismatch,
      absl::StrCat("cache ", cache.name, " is for the model \"", cache.model_fingerprint,
                   "\", the engine's model is \"", fingerprint, "\""));
}

// Choosing tokens is short: with more threads, most of the time goes to waking them.
constexpr uint32_t kMostSamplingThreads = 8;

// Uses as many threads as the model has CPU threads, at most kMostSamplingThreads. 0 means all
// processors that the process can run on.
uint32_t SamplingThreads(uint32_t num_threads) {
  return std::min(num_threads == 0 ? NumProcessors() : num_threads, kMostSamplingThreads);
}

// K and V of each layer, as the model's backend reads them.
std::vector<kernels::KvLayer> LayersOf(const KvPools& pools, const CacheClient& client) {
  if (const uint32_t slots = SlotsPerSequence(client); slots != 0) {
    return ContiguousLayers(pools, slots);
  }
  if (ArrangementOf(client) == KvArrangement::kTokenFlat) return TokenFlatLayers(pools);
  return {pools.layers().begin(), pools.layers().end()};
}

absl::Status EngineEnds() { return absl::CancelledError("the engine is shutting down"); }

}  // namespace

class Engine::State {
 public:
  State(const Options& options, std::unique_ptr<Transformer> model, std::string fingerprint,
        NamedAdapters adapters, std::unique_ptr<CacheClient> client, KvPools pools)
      : places_(options.waiting, options.tenants),
        fingerprint_(std::move(fingerprint)),
        adapters_(std::move(adapters)),
        gpu_report_(options.gpu_report),
        max_running_sequences_(options.scheduler.max_running_sequences),
        model_(std::move(model)),
        client_(std::move(client)),
        pools_(std::move(pools)),
        layers_(LayersOf(pools_, *client_)),
        sampling_threads_(SamplingThreads(options.cpu.num_threads)),
        place_(pools_.place()),
        scheduler_(
            options.scheduler, client_.get(), {pools_.windows().begin(), pools_.windows().end()},
            [this](const ModelInput& input) { return model_->ForwardWithDraws(input, layers_); },
            &sampling_threads_),
        on_warning_(options.on_warning),
        info_(client_->info()) {
    started_ = sampling_threads_.started();
    if (started_.ok()) started_ = thread_.Start("pagoda-engine", [this] { Run(); });
  }

  ~State() {
    {
      absl::MutexLock lock(&link_->mutex);
      link_->state = nullptr;
    }
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    thread_.Join();
  }

  // OK, or why a thread is missing. Then nothing may be submitted.
  const absl::Status& started() const { return started_; }
  const Transformer& model() const { return *model_; }
  const std::string& fingerprint() const { return fingerprint_; }
  const NamedAdapters& adapters() const { return adapters_; }
  const std::optional<GpuSelfTestReport>& gpu_report() const { return gpu_report_; }

  absl::Status Check(const GenerateRequest& request) const {
    absl::MutexLock lock(&mutex_);
    return CheckRequest(request, model_->config(), adapters_, info_, max_running_sequences_);
  }

  absl::Status Submit(GenerateRequest request, TokenCallback on_token, EndCallback on_end,
                      Entry entry) {
    if (absl::Status status = Check(request); !status.ok()) return status;
    if (absl::Status status = model_->CheckFiles(); !status.ok()) return status;
    adapters_.Apply(request);
    if (request.grammar != nullptr) {
      const std::vector<TokenId>& ends = model_->config().eos_token_ids;
      request.stop_tokens.insert(request.stop_tokens.end(), ends.begin(), ends.end());
      // The others cannot come, and would make each mask as long as the largest of them.
      std::erase_if(request.stop_tokens,
                    [&](TokenId token) { return token >= model_->config().vocab_size; });
    }
    ApplyRotaryRange(model_->config(), request);
    const NamespaceKey name_space = request.name_space;
    const auto active = std::make_shared<ActiveRequest>();
    active->on_token = std::move(on_token);
    active->on_end = std::move(on_end);
    active->arrival = request.arrival.value_or(SteadyNow());
    active->is_prepared = entry.prepare == nullptr;
    {
      absl::MutexLock lock(&mutex_);
      if (ended_) return EngineEnds();
      absl::StatusOr<WaitingPlaces::Place> place =
          entry.is_again ? places_.TakeAgain(request) : places_.Take(request);
      if (!place.ok()) return place.status();
      active->place = *std::move(place);
      active->request = std::move(request);
      inbox_.push_back(active);
    }
    if (entry.prepare == nullptr) return absl::OkStatus();
    const std::weak_ptr<ActiveRequest> prepared = active;
    entry.prepare(name_space, [link = link_, prepared](absl::StatusOr<uint32_t> fetched_tokens) {
      absl::MutexLock link_lock(&link->mutex);
      if (link->state == nullptr) return;
      std::shared_ptr<ActiveRequest> waiting = prepared.lock();
      if (waiting == nullptr) return;
      absl::MutexLock lock(&link->state->mutex_);
      link->state->prepared_.push_back({std::move(waiting), std::move(fetched_tokens)});
    });
    return absl::OkStatus();
  }

  absl::Status Attach(std::unique_ptr<CacheClient> client) {
    if (absl::Status fits = CheckCache(client->info(), fingerprint_); !fits.ok()) return fits;
    absl::StatusOr<KvPools> pools = KvPools::Map(*client, model_->config());
    if (!pools.ok()) return pools.status();
    if (absl::Status there = CheckPlace(pools->place()); !there.ok()) return there;
    if (ArrangementOf(*client) != arrangement_) {
      return MakeError(Reason::kInvalidArgument,
                       "an engine cannot change between the basic and the paged cache");
    }
    Attachment attachment{std::move(client), *std::move(pools)};
    absl::MutexLock lock(&mutex_);
    // One at a time.
    const auto free = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !attachment_; };
    mutex_.Await(absl::Condition(&free));
    attachment_ = &attachment;
    const auto taken = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return attachment_ != &attachment;
    };
    mutex_.Await(absl::Condition(&taken));
    return absl::OkStatus();
  }

  // Runs the work on the engine's thread, between two steps.
  absl::StatusOr<KvFileReport> BetweenSteps(
      const std::function<absl::StatusOr<KvFileReport>(SequenceId scratch)>& work) {
    absl::StatusOr<KvFileReport> report = EngineEnds();
    bool done = false;
    absl::MutexLock lock(&mutex_);
    tasks_.push_back([this, &work, &report, &done] {
      report = work(SequenceId(kScratchSequence));
      absl::MutexLock relock(&mutex_);
      done = true;
    });
    const auto is_done = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return done || ended_; };
    mutex_.Await(absl::Condition(&is_done));
    return report;
  }

  absl::StatusOr<KvFileReport> SaveKv(const NamespaceKey& name_space,
                                      absl::Span<const TokenId> tokens, const std::string& path) {
    return BetweenSteps([&](SequenceId scratch) {
      return pagoda::SaveKv(*client_, scratch, pools_, name_space, tokens, path);
    });
  }

  absl::StatusOr<KvFileReport> LoadKv(const NamespaceKey& name_space, const std::string& path) {
    return BetweenSteps([&](SequenceId scratch) {
      return pagoda::LoadKv(*client_, scratch, pools_, name_space, path);
    });
  }

  EngineStats Stats() const {
    absl::MutexLock lock(&mutex_);
    EngineStats stats = stats_;
    stats.waiting_requests += inbox_.size();
    return stats;
  }

 private:
  using Arrivals = std::vector<std::shared_ptr<ActiveRequest>>;
  struct Preparation {
    std::shared_ptr<ActiveRequest> request;
    absl::StatusOr<uint32_t> fetched_tokens;
  };
  // The preparations under way own it too. They can end after this object: then `state` is null.
  struct Link {
    explicit Link(State* of) : state(of) {}

    absl::Mutex mutex;  // Before mutex_.
    State* state ABSL_GUARDED_BY(mutex);
  };
  struct Attachment {
    std::unique_ptr<CacheClient> client;
    KvPools pools;
  };

  // The engine's thread.
  void Run() {
    Scheduler::Progress progress = Scheduler::Progress::kMade;
    while (TakeArrivals(progress)) {
      progress = scheduler_.Step();
      ReportStep();
    }
    scheduler_.Shutdown(EngineEnds());
    ReportStep();
    Arrivals left;
    {
      absl::MutexLock lock(&mutex_);
      ended_ = true;
      left = std::exchange(inbox_, {});
    }
    for (const auto& arrival : left) arrival->on_end(EngineEnds());
  }

  void ReportStep() {
    StepGraphCounts graphs = model_->backend().graph_counts();
    WarnOf(graphs);
    {
      absl::MutexLock lock(&mutex_);
      stats_ = {scheduler_.stats(), std::move(graphs)};
    }
    scheduler_.ReportEnds();
  }

  void WarnOf(const StepGraphCounts& graphs) {
    if (on_warning_ == nullptr) return;
    if (const std::string what = graph_warnings_.Next(graphs); !what.empty()) on_warning_(what);
  }

  // Waits until there is work, and takes it. False when the engine ends.
  bool TakeArrivals(Scheduler::Progress progress) {
    Arrivals arrivals;
    std::vector<Preparation> prepared;
    std::vector<std::function<void()>> tasks;
    {
      absl::MutexLock lock(&mutex_);
      const auto something = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !inbox_.empty() || !prepared_.empty() || !tasks_.empty() ||
               attachment_ != nullptr;
      };
      if (scheduler_.idle()) {
        mutex_.Await(absl::Condition(&something));
      } else if (progress == Scheduler::Progress::kNone) {
        mutex_.AwaitWithTimeout(absl::Condition(&something),
                                scheduler_.is_fetching() ? kFetchPause : kCapacityPause);
      }
      if (stopping_) return false;
      arrivals = std::exchange(inbox_, {});
      prepared = std::exchange(prepared_, {});
      tasks = std::exchange(tasks_, {});
      // Counts the arrivals until the scheduler's own numbers include them.
      stats_.waiting_requests += arrivals.size();
      if (attachment_ != nullptr) TakeAttachment();
    }
    for (const std::function<void()>& task : tasks) task();
    for (auto& arrival : arrivals) scheduler_.Add(std::move(arrival));
    for (const auto& [request, tokens] : prepared) scheduler_.Prepared(request, tokens);
    return true;
  }

  void TakeAttachment() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Attachment& taken = *std::exchange(attachment_, nullptr);
    scheduler_.Attach(taken.client.get());
    // The old client must be destroyed last, because its end says that its pools are no longer
    // used.
    pools_ = std::move(taken.pools);
    client_.swap(taken.client);
    layers_ = LayersOf(pools_, *client_);
    info_ = client_->info();
  }

  // The weights do not move, so the pools must be in the same memory.
  absl::Status CheckPlace(const MemoryPlace& place) const {
    if (place.kind == place_.kind && place.device == place_.device) return absl::OkStatus();
    return MakeError(
        Reason::kInvalidArgument,
        absl::StrCat("the cache's primary pools lie in the memory of ", PlaceName(place),
                     ", but the engine computes on ", PlaceName(place_)));
  }

  // First, so that it is destroyed last: requests outside this object hold places.
  WaitingPlaces places_;
  const std::string fingerprint_;
  const NamedAdapters adapters_;
  const std::optional<GpuSelfTestReport> gpu_report_;
  const uint32_t max_running_sequences_;
  const std::unique_ptr<Transformer> model_;

  // The engine's thread uses these.
  std::unique_ptr<CacheClient> client_;
  KvPools pools_;
  std::vector<kernels::KvLayer> layers_;  // Into pools_.
  kernels::cpu::ThreadPool sampling_threads_;
  const MemoryPlace place_;  // The place of every client's primary pools.
  const std::optional<KvArrangement> arrangement_ = ArrangementOf(*client_);
  Scheduler scheduler_;

  // For the engine's thread.
  const decltype(Options::on_warning) on_warning_;
  GraphWarnings graph_warnings_;

  const std::shared_ptr<Link> link_ = std::make_shared<Link>(this);

  mutable absl::Mutex mutex_;
  CacheInfo info_ ABSL_GUARDED_BY(mutex_);
  // Other threads hand these over to the engine's thread, in order.
  Arrivals inbox_ ABSL_GUARDED_BY(mutex_);
  std::vector<Preparation> prepared_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  Attachment* attachment_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // The thread accepts no more requests.
  EngineStats stats_ ABSL_GUARDED_BY(mutex_);

  absl::Status started_;
  Thread thread_;  // Last: it uses the others.
};

absl::StatusOr<CacheSpec> Engine::CacheSpecForModel(const std::string& model_dir,
                                                    uint32_t tokens_per_block, DType kv_dtype) {
  absl::StatusOr<ModelConfig> config = LoadModelConfig(model_dir);
  if (!config.ok()) return config.status();
  absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(model_dir);
  if (!checkpoint.ok()) return checkpoint.status();
  CacheSpec spec;
  spec.model_fingerprint = checkpoint->Fingerprint(*config);
  spec.tokens_per_block = tokens_per_block;
  for (const LayerConfig& layer : config->layers) {
    spec.layers.push_back({.window = layer.window,
                           .num_kv_heads = layer.num_kv_heads,
                           .head_dim = config->head_dim,
                           .dtype = kv_dtype,
                           .kind = layer.kind});
  }
  if (absl::Status unchanged = checkpoint->CheckUnchanged(); !unchanged.ok()) return unchanged;
  return spec;
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(Options options,
                                                       std::unique_ptr<CacheClient> client) {
  if (options.scheduler.max_step_tokens == 0 || options.scheduler.max_running_sequences == 0) {
    return MakeError(Reason::kInvalidArgument,
                     "max_step_tokens and max_running_sequences must be at least 1");
  }
  if (absl::Status built = CheckBuilt(options.backend); !built.ok()) return built;
  absl::StatusOr<ModelConfig> config = LoadModelConfig(options.model_dir);
  if (!config.ok()) return config.status();
  absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(options.model_dir);
  if (!checkpoint.ok()) return checkpoint.status();
  absl::StatusOr<OpenedAdapters> adapters = OpenAdapters(options.adapters, *config, *checkpoint);
  if (!adapters.ok()) return adapters.status();
  std::string fingerprint = checkpoint->Fingerprint(*config);
  absl::Status fits = CheckCache(client->info(), fingerprint);
  if (!fits.ok()) return fits;
  absl::StatusOr<KvPools> pools = KvPools::Map(*client, *config);
  if (!pools.ok()) return pools.status();
  const auto self_test = [&]() -> absl::StatusOr<GpuSelfTestReport> {
    if (options.gpu_report.has_value()) return *options.gpu_report;
    const kernels::KvLayer& kv = pools->layers().front();
    absl::StatusOr<GpuSelfTestReport> report = TestGpu({.model_dir = options.model_dir,
                                                        .device = pools->place().device,
                                                        .kv_type = kv.type,
                                                        .tokens_per_block = kv.tokens_per_block,
                                                        .compute = options.cpu.compute,
                                                        .attention = options.gpu_attention,
                                                        .program = ""});
    if (report.ok()) options.gpu_report = *report;
    return report;
  };
  absl::StatusOr<std::unique_ptr<Backend>> backend = MakeBackend(
      options.backend, pools->place(), options.cpu,
      {.attention = options.gpu_attention, .graphs = options.gpu_graphs, .self_test = self_test});
  if (!backend.ok()) return backend.status();
  if (pools->place().kind == MemoryKind::kHost) options.gpu_report.reset();
  if (SlotsPerSequence(*client) != 0) {
    const uint32_t threads = options.cpu.num_threads;
    backend = MakeContiguousBackend(*std::move(backend), threads == 0 ? NumProcessors() : threads);
    if (!backend.ok()) return backend.status();
  }
  if (options.on_load != nullptr) {
    backend = std::make_unique<LoadWatch>(*std::move(backend), options.on_load);
  }
  absl::StatusOr<std::unique_ptr<Transformer>> model = Transformer::Create(
      *config, *std::move(checkpoint), *std::move(backend), std::move(adapters->adapters));
  if (!model.ok()) return model.status();
  auto state =
      std::make_unique<State>(options, *std::move(model), std::move(fingerprint),
                              std::move(adapters->names), std::move(client), *std::move(pools));
  if (absl::Status status = state->started(); !status.ok()) return status;
  return absl::WrapUnique(new Engine(std::move(state)));
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::~Engine() = default;

absl::Status Engine::Submit(GenerateRequest request, TokenCallback on_token, EndCallback on_end,
                            Entry entry) {
  return state_->Submit(std::move(request), std::move(on_token), std::move(on_end),
                        std::move(entry));
}

absl::StatusOr<GenerateReport> Engine::Generate(GenerateRequest request, TokenCallback on_token) {
  absl::StatusOr<GenerateReport> outcome = absl::UnknownError("not ended");
  absl::Notification ended;
  absl::Status submitted =
      Submit(std::move(request), std::move(on_token), [&](absl::StatusOr<GenerateReport> report) {
        outcome = std::move(report);
        ended.Notify();
      });
  if (!submitted.ok()) return submitted;
  ended.WaitForNotification();
  return outcome;
}

absl::StatusOr<KvFileReport> Engine::SaveKv(const NamespaceKey& name_space,
                                            absl::Span<const TokenId> tokens,
                                            const std::string& path) {
  return state_->SaveKv(name_space, tokens, path);
}

absl::StatusOr<KvFileReport> Engine::LoadKv(const NamespaceKey& name_space,
                                            const std::string& path) {
  return state_->LoadKv(name_space, path);
}

absl::Status Engine::Attach(std::unique_ptr<CacheClient> client) {
  return state_->Attach(std::move(client));
}

absl::Status Engine::Check(const GenerateRequest& request) const { return state_->Check(request); }

absl::Status Engine::CheckFiles() const { return state_->model().CheckFiles(); }

const ModelConfig& Engine::model() const { return state_->model().config(); }

const std::optional<GpuSelfTestReport>& Engine::gpu_report() const { return state_->gpu_report(); }

const std::string& Engine::model_fingerprint() const { return state_->fingerprint(); }

absl::Span<const NamedAdapter> Engine::adapters() const { return state_->adapters().list(); }

std::string Engine::description() const {
  return absl::StrCat(model().architecture, " on ", state_->model().backend().description());
}

EngineStats Engine::Stats() const { return state_->Stats(); }

}  // namespace pagoda

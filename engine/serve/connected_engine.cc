#include "engine/serve/connected_engine.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "clients/cpp/backoff.h"
#include "clients/cpp/open_cache.h"
#include "engine/basic_cache_client.h"
#include "wire/errors.h"

namespace pagoda {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
constexpr absl::Duration kMostPause = absl::Seconds(2);

// Limits how often one request is run, because the request itself may be the reason why daemons
// end.
constexpr int kMostRuns = 5;

// The size of a basic cache.
constexpr uint32_t kBasicTokensPerBlock = 32;
constexpr uint32_t kBasicSequences = 8;
constexpr uint32_t kBasicSequenceTokens = 4096;

// Whether the error comes from the connection or the session, not from the request.
bool IsDaemonGone(const absl::Status& status) {
  if (IsSessionOver(status) || ReasonOf(status) == Reason::kDraining) return true;
  return ReasonOf(status) == Reason::kNone &&
         (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status));
}

// Whether a later attempt to open a session can succeed after this error.
bool MayChange(const absl::Status& status) {
  return IsDaemonGone(status) || absl::IsResourceExhausted(status);
}

std::string TextOf(const absl::Status& status) {
  const Reason reason = ReasonOf(status);
  return absl::StrCat(reason == Reason::kNone ? absl::StatusCodeToString(status.code())
                                              : std::string(ReasonName(reason)),
                      ": ", std::string(status.message()));
}

constexpr char kInterrupted[] = "interrupted";

}  // namespace

struct ConnectedEngine::Run {
  GenerateRequest request;  // As the caller asked, without the functions below.
  TokenCallback on_token;
  EndCallback on_end;
  std::function<bool(const GeneratedToken&)> ends_sample;
  std::function<bool()> cancelled;
  int runs = 0;
  // The engine's session in which the last run began, and why that run ended.
  int session = 0;
  absl::Status why;
  // The tenant's session; null if it is the engine's own.
  TenantSessions::SessionPtr of_tenant;
  // The tenant's session in which the last run ended. For comparisons alone.
  const TenantSessions::Session* lost = nullptr;
  // The engine's thread uses these. By sample: the tokens that the caller has, and the tokens of
  // this run. A run again brings first what the caller has.
  std::vector<uint32_t> given;
  std::vector<uint32_t> seen;
  bool repeats = false;  // The last token.
};

absl::StatusOr<std::unique_ptr<ConnectedEngine>> ConnectedEngine::Create(Options options) {
  auto connected = absl::WrapUnique(new ConnectedEngine(std::move(options)));
  const Options& chosen = connected->options_;
  Engine::Options engine_options = chosen.engine;
  if (chosen.kv == KvMode::kPaged) {
    engine_options.fetch_prompt = [connected = connected.get()](
                                      const GenerateRequest& request,
                                      std::function<void(uint32_t)> done) {
      connected->FetchPrompt(request, std::move(done));
    };
  }
  absl::StatusOr<std::unique_ptr<CacheClient>> client =
      connected->OpenClient(chosen.client.timeout);
  if (!client.ok()) return client.status();
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(std::move(engine_options), *std::move(client));
  if (!engine.ok()) return engine.status();
  connected->engine_ = *std::move(engine);
  absl::Status started = connected->reconnecting_.Start(
      "pagoda-connect", [connected = connected.get()] { connected->Reconnect(); });
  if (!started.ok()) return started;
  return connected;
}

ConnectedEngine::~ConnectedEngine() {
  Interrupt();
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  reconnecting_.Join();
  engine_.reset();
}

absl::Status ConnectedEngine::Submit(GenerateRequest request, TokenCallback on_token,
                                     EndCallback on_end) {
  if (interrupted_.HasBeenNotified()) return absl::CancelledError(kInterrupted);
  if (options_.kv == KvMode::kBasic && request.beam_width > kBasicSequences) {
    return MakeError(Reason::kInvalidCount,
                     absl::StrCat("beam_width is ", request.beam_width, "; --kv basic has ",
                                  kBasicSequences, " sequences"));
  }
  if (absl::Status status = engine_->Check(request); !status.ok()) return status;
  if (!request.arrival.has_value()) request.arrival = SteadyNow();
  const auto run = std::make_shared<Run>();
  run->ends_sample = std::exchange(request.ends_sample, nullptr);
  run->cancelled = std::exchange(request.cancelled, nullptr);
  run->given.resize(request.num_samples);
  run->on_token = std::move(on_token);
  run->on_end = std::move(on_end);
  run->request = std::move(request);
  const std::shared_ptr<TenantSessions> open = sessions();
  if (!run->request.tenant.empty() && open != nullptr) {
    run->of_tenant = open->Use(run->request.tenant);
    // The caller's thread may not wait for a session.
    if (run->of_tenant == nullptr) {
      absl::MutexLock lock(&mutex_);
      again_.push_back(run);
      return absl::OkStatus();
    }
  }
  return Start(run);
}

absl::Status ConnectedEngine::Start(const RunPtr& run) {
  ++run->runs;
  run->session = session_;
  run->seen.assign(run->given.size(), 0);
  GenerateRequest request = run->request;
  request.cancelled = [this, run] {
    return interrupted_.HasBeenNotified() || (run->cancelled != nullptr && run->cancelled());
  };
  if (run->ends_sample != nullptr) {
    // The caller's function has already seen a repeated token, and did not end the sample.
    request.ends_sample = [run](const GeneratedToken& token) {
      return !run->repeats && run->ends_sample(token);
    };
  }
  const auto on_token = [this, run](const GeneratedToken& token) {
    if (interrupted_.HasBeenNotified()) return false;
    run->repeats = run->seen[token.sample]++ < run->given[token.sample];
    if (run->repeats) return true;
    ++run->given[token.sample];
    return run->on_token(token);
  };
  const auto on_end = [this, run](absl::StatusOr<GenerateReport> report) {
    End(run, std::move(report));
  };
  return engine_->Submit(std::move(request), on_token, on_end);
}

void ConnectedEngine::End(const RunPtr& run, absl::StatusOr<GenerateReport> report) {
  // The token that opened the tenant's session can be revoked, and the request have another one.
  const bool revoked =
      run->of_tenant != nullptr && ReasonOf(report.status()) == Reason::kUnauthenticated;
  const bool again =
      !report.ok() && (IsDaemonGone(report.status()) || revoked) && run->runs < kMostRuns;
  run->lost = run->of_tenant.get();
  {
    absl::MutexLock lock(&mutex_);
    if (run->of_tenant != nullptr) unused_.push_back(std::exchange(run->of_tenant, nullptr));
    if (again && !stopping_ && !interrupted_.HasBeenNotified()) {
      run->why = report.status();
      again_.push_back(run);
      return;
    }
  }
  run->on_end(std::move(report));
}

absl::StatusOr<Generated> ConnectedEngine::Generate(GenerateRequest request) {
  struct Waited {
    absl::Notification done;
    Generated generated;
    absl::StatusOr<GenerateReport> report;
  };
  const auto waited = std::make_shared<Waited>();
  waited->generated.tokens.resize(request.num_samples);
  absl::Status status = Submit(
      std::move(request),
      [waited](const GeneratedToken& token) {
        waited->generated.tokens[token.sample].push_back(token.token);
        return true;
      },
      [waited](absl::StatusOr<GenerateReport> report) {
        waited->report = std::move(report);
        waited->done.Notify();
      });
  if (!status.ok()) return status;
  waited->done.WaitForNotification();
  if (!waited->report.ok()) return waited->report.status();
  waited->generated.report = *std::move(waited->report);
  return std::move(waited->generated);
}

std::string ConnectedEngine::cache_name() const {
  const std::shared_ptr<TenantSessions> open = sessions();
  return open == nullptr ? "" : open->own()->client->info().name;
}

bool ConnectedEngine::connected() const { return over_ != session_ && answers_; }

void ConnectedEngine::Probe(absl::Duration timeout) {
  const std::shared_ptr<TenantSessions> open = sessions();
  if (open == nullptr) return;
  const absl::Status status = RenewLease(*open->own()->client, timeout);
  answers_ = status.ok();
  if (IsSessionOver(status) && open == sessions()) LookAgain(session_);
}

std::shared_ptr<TenantSessions> ConnectedEngine::sessions() const {
  absl::MutexLock lock(&mutex_);
  return sessions_;
}

void ConnectedEngine::Reconnect() {
  for (;;) {
    std::vector<RunPtr> runs;
    std::vector<TenantSessions::SessionPtr> unused;
    bool look = false;
    {
      absl::MutexLock lock(&mutex_);
      const auto something = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return stopping_ || look_ || !again_.empty() || !unused_.empty();
      };
      mutex_.Await(absl::Condition(&something));
      runs = std::exchange(again_, {});
      unused = std::exchange(unused_, {});
      look = std::exchange(look_, false);
      if (stopping_) break;
    }
    unused.clear();  // A session may end with its last request.
    if (look && over_ == session_) {
      const absl::Status over =
          MakeError(Reason::kStaleSession, "the daemon refused to renew the session's lease");
      const absl::Status status = ReconnectFrom(over_, over);
      if (!status.ok() && options_.on_lost) options_.on_lost(status);
      if (!status.ok() && !options_.on_lost) {
        interrupted_.WaitForNotificationWithTimeout(kMostPause);
        LookAgain(over_);
      }
    }
    for (const RunPtr& run : runs) RunAgain(run);
  }
  std::vector<RunPtr> left;
  {
    absl::MutexLock lock(&mutex_);
    left = std::exchange(again_, {});
  }
  for (const RunPtr& run : left) run->on_end(absl::CancelledError(kInterrupted));
}

void ConnectedEngine::LookAgain(int over) {
  int last = over_;
  while (last < over && !over_.compare_exchange_weak(last, over)) continue;
  absl::MutexLock lock(&mutex_);
  look_ = true;
}

void ConnectedEngine::RunAgain(const RunPtr& run) {
  absl::Status status = run->why.ok() ? absl::OkStatus() : Repair(run);
  if (status.ok()) status = FindSession(run);
  if (status.ok()) status = Start(run);
  if (!status.ok()) run->on_end(status);
}

absl::Status ConnectedEngine::Repair(const RunPtr& run) {
  if (interrupted_.HasBeenNotified()) return absl::CancelledError(kInterrupted);
  const std::shared_ptr<TenantSessions> open = sessions();
  if (!run->request.tenant.empty() && open != nullptr && session_ == run->session &&
      RenewLease(*open->own()->client, options_.client.timeout).ok()) {
    // The daemon is there: only this session was lost.
    open->Forget(run->request.tenant, run->lost);
    return absl::OkStatus();
  }
  return ReconnectFrom(run->session, run->why);
}

absl::Status ConnectedEngine::FindSession(const RunPtr& run) {
  if (run->request.tenant.empty() || sessions() == nullptr) return absl::OkStatus();
  for (bool retried = false;; retried = true) {
    const int session = session_;
    absl::StatusOr<TenantSessions::SessionPtr> found =
        sessions()->Get(run->request.tenant, run->request.token);
    if (found.ok()) {
      run->of_tenant = *std::move(found);
      return absl::OkStatus();
    }
    if (retried || !IsDaemonGone(found.status())) return found.status();
    if (absl::Status status = ReconnectFrom(session, found.status()); !status.ok()) return status;
  }
}

absl::Status ConnectedEngine::ReconnectFrom(int session, const absl::Status& why) {
  if (session_ != session) return absl::OkStatus();  // Another request has reconnected.
  const absl::Time start = absl::Now();
  const absl::Time deadline = start + options_.reconnect;
  options_.say(absl::StrCat("lost the session with ", options_.client.endpoint, " (", TextOf(why),
                            "); looking for a daemon there for up to ",
                            absl::FormatDuration(options_.reconnect)));
  Backoff backoff(kFirstPause, kMostPause);
  absl::Status status = why;
  for (;;) {
    if (interrupted_.HasBeenNotified()) return absl::CancelledError(kInterrupted);
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) break;
    status = OpenAndAttach(std::min(options_.client.timeout, left));
    if (status.ok()) {
      options_.say(absl::StrCat(
          "continues in a new session, after ",
          absl::FormatDuration(absl::Trunc(absl::Now() - start, absl::Milliseconds(1)))));
      return status;
    }
    if (!MayChange(status)) return status;
    interrupted_.WaitForNotificationWithTimeout(std::min(backoff.Next(), left));
  }
  return absl::UnavailableError(
      absl::StrCat("no daemon at ", options_.client.endpoint, " opened a session within ",
                   absl::FormatDuration(options_.reconnect), "; the last error: ", TextOf(status)));
}

absl::Status ConnectedEngine::OpenAndAttach(absl::Duration timeout) {
  absl::StatusOr<std::unique_ptr<CacheClient>> client = OpenClient(timeout);
  if (!client.ok()) return client.status();
  return engine_->Attach(*std::move(client));
}

absl::StatusOr<std::unique_ptr<CacheClient>> ConnectedEngine::OpenClient(absl::Duration timeout) {
  if (options_.kv == KvMode::kBasic) return OpenBasicCache();
  if (options_.brings.has_value()) {
    if (absl::Status status = BringCache(timeout); !status.ok()) return status;
  }
  absl::StatusOr<TenantSessions::Session> own = OpenOwn(timeout);
  if (!own.ok()) return own.status();
  ++session_;
  options_.say(absl::StrCat(
      "batches reach ", options_.client.endpoint,
      TransportOf(*own->client) == Transport::kRings ? " through shared memory" : " over gRPC"));
  may_have_store_ = true;
  const CacheClient* const own_client = own->client.get();
  auto opened = std::make_shared<TenantSessions>(
      *std::move(own),
      [this](const std::string& tenant, const std::string& token) {
        return OpenFor(tenant, token);
      },
      [this, own_client] { return RenewLease(*own_client, options_.client.timeout); });
  std::unique_ptr<CacheClient> client = opened->MakeClient();
  {
    absl::MutexLock lock(&mutex_);
    opened.swap(sessions_);
  }
  return client;  // The old sessions end here without the lock: they wait for their calls.
}

absl::StatusOr<TenantSessions::Session> ConnectedEngine::OpenOwn(absl::Duration timeout) {
  GrpcCacheClientOptions options = options_.client;
  options.timeout = timeout;
  // The first session has no fingerprint yet: the engine compares the cache after it has read its
  // model.
  if (engine_ != nullptr) options.model_fingerprint = engine_->model_fingerprint();
  options.on_session_over = [this, session = session_ + 1](const absl::Status&) {
    LookAgain(session);
  };
  std::unique_ptr<PrefixFetcher> fetcher;
  absl::StatusOr<std::unique_ptr<CacheClient>> client =
      OpenGrpcCacheClient(std::move(options), &fetcher);
  if (!client.ok()) return client.status();
  return TenantSessions::Session{.client = *std::move(client), .fetcher = std::move(fetcher)};
}

absl::StatusOr<TenantSessions::Session> ConnectedEngine::OpenFor(const std::string& tenant,
                                                                 const std::string& token) const {
  GrpcCacheClientOptions options = options_.client;
  options.tenant = tenant;
  if (!token.empty()) options.credentials.token = token;
  options.model_fingerprint = engine_->model_fingerprint();
  const auto over = std::make_shared<std::atomic<bool>>(false);
  options.on_session_over = [over](const absl::Status&) { *over = true; };
  std::unique_ptr<PrefixFetcher> fetcher;
  absl::StatusOr<std::unique_ptr<CacheClient>> client =
      OpenGrpcCacheClient(std::move(options), &fetcher);
  if (!client.ok()) return client.status();
  // The engine writes through the mappings that it has. This call makes it a writer of this session
  // too.
  const auto pools = (*client)->MapPools(MemoryAccess::kReadWrite);
  if (!pools.ok()) return pools.status();
  return TenantSessions::Session{.client = *std::move(client),
                                 .fetcher = std::move(fetcher),
                                 .is_over = [over] { return over->load(); }};
}

void ConnectedEngine::FetchPrompt(const GenerateRequest& request,
                                  std::function<void(uint32_t)> done) {
  if (!may_have_store_ && request.fetch_source.empty()) return done(0);
  const std::shared_ptr<TenantSessions> open = sessions();
  const TenantSessions::SessionPtr session = open == nullptr ? nullptr : open->Find(request.tenant);
  const std::shared_ptr<PrefixFetcher> fetcher = session == nullptr ? nullptr : session->fetcher;
  if (fetcher == nullptr) return done(0);
  fetcher->Fetch({.name_space = request.name_space,
                  .tokens = request.prompt,
                  .tenant = request.tenant,
                  .source = request.fetch_source},
                 [this, done = std::move(done)](const absl::StatusOr<FetchedFromAfar>& fetched) {
                   if (fetched.ok() && fetched->outcome == FetchOutcome::kNoSource) {
                     may_have_store_ = false;
                   }
                   done(fetched.ok() ? fetched->fetched_tokens : 0);
                 });
}

absl::Status ConnectedEngine::BringCache(absl::Duration timeout) const {
  const absl::StatusOr<CacheSpec> spec = Engine::CacheSpecForModel(
      options_.engine.model_dir, options_.brings->tokens_per_block, options_.brings->kv_dtype);
  if (!spec.ok()) return spec.status();
  return OpenCache({.endpoint = options_.client.endpoint,
                    .timeout = timeout,
                    .credentials = options_.client.credentials},
                   {.name = options_.client.cache,
                    // Only the model: the engine accepts the cache by this fingerprint.
                    .identity = {.model = spec->model_fingerprint},
                    .tokens_per_block = spec->tokens_per_block,
                    .layers = spec->layers,
                    .tiers = {options_.brings->host}})
      .status();
}

absl::StatusOr<std::unique_ptr<CacheClient>> ConnectedEngine::OpenBasicCache() const {
  if (options_.engine.backend == EngineBackend::kCuda) {
    return MakeError(Reason::kInvalidArgument,
                     "--kv basic keeps the KV in this process's host memory, which the backend "
                     "cuda cannot use: leave out --backend, or use --kv paged with a daemon whose "
                     "primary pools are on a GPU");
  }
  const std::string& model_dir = options_.engine.model_dir;
  absl::StatusOr<CacheSpec> spec =
      Engine::CacheSpecForModel(model_dir, kBasicTokensPerBlock, DType::kFloat32);
  if (!spec.ok()) return spec.status();
  return MakeBasicCacheClient({.spec = *std::move(spec),
                               .max_sequences = kBasicSequences,
                               .max_sequence_tokens = kBasicSequenceTokens});
}

void ConnectedEngine::Interrupt() {
  if (!interrupted_.HasBeenNotified()) interrupted_.Notify();
}

}  // namespace pagoda

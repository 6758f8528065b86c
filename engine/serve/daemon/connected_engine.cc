#include "engine/serve/daemon/connected_engine.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "clients/cpp/backoff.h"
#include "clients/cpp/open_cache.h"
#include "wire/errors.h"

namespace pagoda {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
constexpr absl::Duration kMostPause = absl::Seconds(2);

// How long the daemon has for the answer whether it knows a session.
constexpr absl::Duration kCheckTime = absl::Seconds(1);
// How long the daemon has for a tenant's part of a step.
constexpr absl::Duration kTenantTime = absl::Seconds(3);

// Limits how often one request is run, because the request itself may be the reason why daemons
// end.
constexpr int kMostRuns = 5;

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
  GenerateRequest request;  // The caller's request, without the functions below.
  TokenCallback on_token;
  EndCallback on_end;
  std::function<bool(const GeneratedToken&)> ends_sample;
  std::function<bool()> cancelled;
  int runs = 0;
  // The engine's session in which the last run began, and why that run ended.
  int session = 0;
  absl::Status why;
  // The tenant's session; null if it is the engine's own. Under mutex_, like the next two.
  TenantSessions::SessionPtr of_tenant;
  bool is_failed = false;  // No session could be found: the request does not start again.
  bool is_over = false;    // The caller has the end.
  // The tenant's session in which the last run ended.
  std::weak_ptr<TenantSessions::Session> lost;
  // The last fetch of the prompt, and the session whose fetcher does it. Under mutex_.
  std::weak_ptr<TenantSessions::Session> fetching;
  uint64_t fetch = 0;
  // The engine's thread uses these. By sample: the tokens that the caller has, and the tokens of
  // this run. A run again brings first what the caller has.
  std::vector<uint32_t> given;
  std::vector<uint32_t> seen;
  std::vector<bool> ended;  // By sample: whether ends_sample has ended it.
  bool repeats = false;     // The last token.
};

absl::StatusOr<std::unique_ptr<ConnectedEngine>> ConnectedEngine::Create(Options options) {
  auto connected = absl::WrapUnique(new ConnectedEngine(std::move(options)));
  const Options& chosen = connected->options_;
  absl::StatusOr<Opened> opened = connected->Open(chosen.client.timeout);
  const absl::Time end = absl::Now() + chosen.patience;
  while (!opened.ok() && MayChange(opened.status()) && absl::Now() < end) {
    absl::SleepFor(kFirstPause);
    opened = connected->Open(chosen.client.timeout);
  }
  if (!opened.ok()) return opened.status();
  connected->Keep(std::move(opened->sessions));
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(chosen.engine, std::move(opened->client));
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
}

absl::Status ConnectedEngine::Submit(GenerateRequest request, TokenCallback on_token,
                                     EndCallback on_end) {
  if (interrupted_.HasBeenNotified()) return absl::CancelledError(kInterrupted);
  if (absl::Status status = engine_->Check(request); !status.ok()) return status;
  if (!request.arrival.has_value()) request.arrival = SteadyNow();
  const auto run = std::make_shared<Run>();
  run->ends_sample = std::exchange(request.ends_sample, nullptr);
  run->cancelled = std::exchange(request.cancelled, nullptr);
  run->given.resize(request.num_samples);
  run->ended.resize(request.num_samples);
  run->on_token = std::move(on_token);
  run->on_end = std::move(on_end);
  run->request = std::move(request);
  const std::shared_ptr<TenantSessions> open = sessions();
  if (!run->request.tenant.empty()) {
    run->of_tenant = open->Use(run->request.tenant, run->request.token);
  }
  return Start(run);
}

absl::Status ConnectedEngine::Start(const RunPtr& run) {
  ++run->runs;
  run->seen.assign(run->given.size(), 0);
  GenerateRequest request = run->request;
  request.cancelled = [this, run] {
    return interrupted_.HasBeenNotified() || (run->cancelled != nullptr && run->cancelled());
  };
  if (run->ends_sample != nullptr) {
    // The caller's function has already seen a repeated token. It can have ended the sample with
    // the last of these.
    request.ends_sample = [run](const GeneratedToken& token) {
      const uint32_t i = token.sample;
      if (run->repeats) return run->ended[i] && run->seen[i] == run->given[i];
      run->ended[i] = run->ends_sample(token);
      return static_cast<bool>(run->ended[i]);
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
  Engine::Entry entry{.is_again = !run->why.ok()};
  if (entry.is_again || (run->of_tenant == nullptr && !request.tenant.empty())) {
    // No caller's thread waits for a session, nor the engine's.
    entry.prepare = [this, run](const NamespaceKey& name_space, Engine::PreparedCallback done) {
      absl::MutexLock lock(&mutex_);
      unprepared_[run->request.tenant].push_back({run, name_space, std::move(done)});
    };
  } else {
    run->session = session_;
    if (MayFetch(request)) {
      entry.prepare = [this, run](const NamespaceKey& name_space, Engine::PreparedCallback done) {
        FetchPrompt(run, name_space, std::move(done));
      };
    }
  }
  return engine_->Submit(std::move(request), on_token, on_end, std::move(entry));
}

void ConnectedEngine::End(const RunPtr& run, absl::StatusOr<GenerateReport> report) {
  {
    absl::MutexLock lock(&mutex_);
    // The token that opened the tenant's session can be revoked, and the request have another one.
    const bool revoked =
        run->of_tenant != nullptr && ReasonOf(report.status()) == Reason::kUnauthenticated;
    run->is_over = report.ok() || !(IsDaemonGone(report.status()) || revoked) || run->is_failed ||
                   run->runs >= kMostRuns || interrupted_.HasBeenNotified();
    if (!run->is_over) run->lost = run->of_tenant;
    if (run->of_tenant != nullptr) unused_.push_back(std::exchange(run->of_tenant, nullptr));
  }
  StopPreparing(run);  // From is_over on, nothing else is begun for it.
  if (!run->is_over) {
    run->why = report.status();
    const absl::Status status = Start(run);
    if (status.ok()) return;
    report = status;
  }
  run->on_end(std::move(report));
}

void ConnectedEngine::StopPreparing(const RunPtr& run) {
  std::optional<Unprepared> dropped;  // Ends behind the lock.
  TenantSessions::SessionPtr fetching;
  uint64_t fetch = 0;
  {
    absl::MutexLock lock(&mutex_);
    fetching = run->fetching.lock();
    fetch = run->fetch;
    if (const auto of_tenant = unprepared_.find(run->request.tenant);
        of_tenant != unprepared_.end()) {
      std::deque<Unprepared>& waiting = of_tenant->second;
      const auto found = std::find_if(waiting.begin(), waiting.end(),
                                      [&](const Unprepared& other) { return other.run == run; });
      if (found != waiting.end()) {
        dropped = std::move(*found);
        waiting.erase(found);
      }
      if (waiting.empty()) unprepared_.erase(of_tenant);
    }
  }
  if (fetching != nullptr) CancelFetch(std::move(fetching), fetch);
}

void ConnectedEngine::CancelFetch(TenantSessions::SessionPtr session, uint64_t fetch) {
  session->fetcher->Cancel(fetch);
  absl::MutexLock lock(&mutex_);
  unused_.push_back(std::move(session));
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
    std::vector<Unprepared> round;
    std::vector<TenantSessions::SessionPtr> unused;
    bool look = false;
    {
      absl::MutexLock lock(&mutex_);
      const auto something = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return stopping_ || look_ || !unprepared_.empty() || !unused_.empty();
      };
      mutex_.Await(absl::Condition(&something));
      if (stopping_) return;  // The engine ends the requests.
      // One request of each tenant, so that none waits for all those of another tenant.
      for (auto& [tenant, waiting] : unprepared_) {
        round.push_back(std::move(waiting.front()));
        waiting.pop_front();
      }
      std::erase_if(unprepared_, [](const auto& entry) { return entry.second.empty(); });
      unused = std::exchange(unused_, {});
      look = std::exchange(look_, false);
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
    for (const Unprepared& waiting : round) Prepare(waiting);
  }
}

void ConnectedEngine::LookAgain(int over) {
  int last = over_;
  while (last < over && !over_.compare_exchange_weak(last, over)) continue;
  absl::MutexLock lock(&mutex_);
  look_ = true;
}

void ConnectedEngine::Prepare(const Unprepared& waiting) {
  const RunPtr& run = waiting.run;
  if (HasEnded(*run)) return;
  absl::StatusOr<TenantSessions::SessionPtr> session = nullptr;
  if (!run->why.ok()) {
    if (absl::Status status = Repair(run); !status.ok()) session = status;
  }
  if (session.ok()) session = FindSession(run);
  run->session = session_;
  const absl::Status found = session.status();
  {
    absl::MutexLock lock(&mutex_);
    run->is_failed = !found.ok();
    if (run->is_over) return;
    if (found.ok()) run->of_tenant = *std::move(session);
  }
  if (!found.ok()) return waiting.done(found);
  FetchPrompt(run, waiting.name_space, waiting.done);
}

bool ConnectedEngine::HasEnded(const Run& run) const {
  if (interrupted_.HasBeenNotified()) return true;
  absl::MutexLock lock(&mutex_);
  return run.is_over;
}

absl::Status ConnectedEngine::Repair(const RunPtr& run) {
  if (absl::Status known = KnownOutcome(run->session); !known.ok()) return known;
  const std::shared_ptr<TenantSessions> open = sessions();
  if (!run->request.tenant.empty() && session_ == run->session &&
      RenewLease(*open->own()->client, kCheckTime).ok()) {
    // The daemon is there. It works too long for this tenant, and the others would wait again.
    if (absl::IsDeadlineExceeded(run->why)) return run->why;
    // Only this session was lost.
    if (const auto lost = run->lost.lock()) open->Forget(run->request.tenant, lost);
    return absl::OkStatus();
  }
  return ReconnectFrom(run->session, run->why, run);
}

absl::Status ConnectedEngine::KnownOutcome(int session) const {
  const bool holds = search_.session == session && absl::Now() < search_.holds_until;
  return holds ? search_.outcome : absl::OkStatus();
}

absl::StatusOr<TenantSessions::SessionPtr> ConnectedEngine::FindSession(const RunPtr& run) {
  if (run->request.tenant.empty()) return nullptr;
  for (bool retried = false;; retried = true) {
    const int session = session_;
    absl::StatusOr<TenantSessions::SessionPtr> found =
        sessions()->Get(run->request.tenant, run->request.token);
    if (found.ok() || retried || !IsDaemonGone(found.status())) return found;
    if (absl::Status known = KnownOutcome(session); !known.ok()) return known;
    // If the daemon is there, the other tenants' requests go on.
    if (RenewLease(*sessions()->own()->client, kCheckTime).ok()) return found;
    if (absl::Status status = ReconnectFrom(session, found.status(), run); !status.ok()) {
      return status;
    }
  }
}

absl::Status ConnectedEngine::ReconnectFrom(int session, const absl::Status& why,
                                            const RunPtr& run) {
  if (session_ != session) return absl::OkStatus();  // Another request has reconnected.
  // The requests that waited while another one searched in vain do not wait as long again.
  if (absl::Status known = KnownOutcome(session); !known.ok()) return known;
  // A request that gave up has searched for part of the time.
  if (search_begun_.first != session) search_begun_ = {session, absl::Now()};
  const absl::Time start = search_begun_.second;
  const absl::Time deadline = start + options_.reconnect;
  options_.say(absl::StrCat("lost the session with ", options_.client.endpoint, " (", TextOf(why),
                            "); looking for a daemon there for up to ",
                            absl::FormatDuration(options_.reconnect)));
  Backoff backoff(kFirstPause, kMostPause);
  absl::Status status = why;
  for (;;) {
    if (run == nullptr ? interrupted_.HasBeenNotified() : HasEnded(*run)) {
      return absl::CancelledError(kInterrupted);
    }
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
  search_begun_.first = -1;  // A later search has the whole time again.
  search_ = {.session = session,
             .holds_until = absl::Now() + kMostPause,
             .outcome = absl::UnavailableError(absl::StrCat(
                 "no daemon at ", options_.client.endpoint, " opened a session within ",
                 absl::FormatDuration(options_.reconnect), "; the last error: ", TextOf(status)))};
  return search_.outcome;
}

absl::Status ConnectedEngine::OpenAndAttach(absl::Duration timeout) {
  absl::StatusOr<Opened> opened = Open(timeout);
  if (!opened.ok()) return opened.status();
  if (absl::Status status = engine_->Attach(std::move(opened->client)); !status.ok()) {
    return status;
  }
  Keep(std::move(opened->sessions));
  return absl::OkStatus();
}

void ConnectedEngine::Keep(std::shared_ptr<TenantSessions> sessions) {
  ++session_;
  may_have_store_ = true;
  answers_ = true;
  absl::MutexLock lock(&mutex_);
  sessions.swap(sessions_);
}

absl::StatusOr<ConnectedEngine::Opened> ConnectedEngine::Open(absl::Duration timeout) {
  if (options_.brings.has_value()) {
    if (absl::Status status = BringCache(timeout); !status.ok()) return status;
  }
  absl::StatusOr<TenantSessions::Session> own = OpenOwn(timeout);
  if (!own.ok()) return own.status();
  options_.say(absl::StrCat(
      "batches reach ", options_.client.endpoint,
      TransportOf(*own->client) == Transport::kRings ? " through shared memory" : " over gRPC"));
  const CacheClient* const own_client = own->client.get();
  auto sessions = std::make_shared<TenantSessions>(
      *std::move(own),
      [this, cache = own_client->info().name](const std::string& tenant, const std::string& token) {
        return OpenFor(cache, tenant, token);
      },
      [this, cache = own_client->info().name](const std::string& tenant, const std::string& token) {
        GrpcCacheClientOptions options = OptionsFor(cache, tenant, token);
        options.transport = Transport::kGrpc;
        return OpenGrpcCacheClient(std::move(options)).status();
      },
      [own_client] { return RenewLease(*own_client, kCheckTime); });
  std::unique_ptr<CacheClient> client = sessions->MakeClient();
  return Opened{.client = std::move(client), .sessions = std::move(sessions)};
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

GrpcCacheClientOptions ConnectedEngine::OptionsFor(const std::string& cache,
                                                   const std::string& tenant,
                                                   const std::string& token) const {
  GrpcCacheClientOptions options = options_.client;
  options.cache = cache;
  options.tenant = tenant;
  if (!token.empty()) options.credentials.token = token;
  options.model_fingerprint = engine_->model_fingerprint();
  // A step of the engine waits for each tenant's session.
  options.timeout = std::min(options.timeout, kTenantTime);
  options.attempt_timeout = kTenantTime / 3;
  return options;
}

absl::StatusOr<TenantSessions::Session> ConnectedEngine::OpenFor(const std::string& cache,
                                                                 const std::string& tenant,
                                                                 const std::string& token) const {
  GrpcCacheClientOptions options = OptionsFor(cache, tenant, token);
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

bool ConnectedEngine::MayFetch(const GenerateRequest& request) const {
  return (may_have_store_ || !request.fetch_source.empty()) &&
         request.prompt.size() > sessions()->own()->client->info().tokens_per_block;
}

void ConnectedEngine::FetchPrompt(const RunPtr& run, const NamespaceKey& name_space,
                                  Engine::PreparedCallback done) {
  const GenerateRequest& request = run->request;
  if (!MayFetch(request)) return done(0);
  const std::shared_ptr<TenantSessions> open = sessions();
  TenantSessions::SessionPtr session = open->Find(request.tenant);
  if (session == nullptr || session->fetcher == nullptr) return done(0);
  uint64_t number = 0;
  bool interrupted = false;
  {
    absl::MutexLock lock(&mutex_);
    interrupted = interrupted_.HasBeenNotified();
    number = next_fetch_++;
    if (!interrupted) fetches_.emplace(number, done);
  }
  if (interrupted) return done(0);
  const uint64_t fetch =
      session->fetcher->Fetch({.name_space = name_space,
                               .tokens = request.prompt,
                               .tenant = request.tenant,
                               .source = request.fetch_source},
                              [this, number](const absl::StatusOr<FetchedFromAfar>& fetched) {
                                if (fetched.ok() && fetched->outcome == FetchOutcome::kNoSource) {
                                  may_have_store_ = false;
                                }
                                EndFetch(number, fetched.ok() ? fetched->fetched_tokens : 0);
                              });
  {
    absl::MutexLock lock(&mutex_);
    if (!run->is_over) {
      run->fetching = session;
      run->fetch = fetch;
      unused_.push_back(std::move(session));
      return;
    }
  }
  CancelFetch(std::move(session), fetch);  // The request ended meanwhile.
}

void ConnectedEngine::EndFetch(uint64_t number, uint32_t tokens) {
  Engine::PreparedCallback done;
  {
    absl::MutexLock lock(&mutex_);
    const auto fetch = fetches_.find(number);
    if (fetch == fetches_.end()) return;
    done = std::move(fetch->second);
    fetches_.erase(fetch);
  }
  done(tokens);
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

void ConnectedEngine::Interrupt() {
  if (interrupted_.HasBeenNotified()) return;
  interrupted_.Notify();
  std::map<uint64_t, Engine::PreparedCallback> fetches;
  {
    absl::MutexLock lock(&mutex_);
    fetches = std::exchange(fetches_, {});
  }
  for (auto& [number, done] : fetches) done(0);
}

}  // namespace pagoda

#ifndef PAGODA_ENGINE_SERVE_DAEMON_CONNECTED_ENGINE_H_
#define PAGODA_ENGINE_SERVE_DAEMON_CONNECTED_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/thread.h"
#include "clients/cpp/grpc_cache_client.h"
#include "engine/engine.h"
#include "engine/generator.h"
#include "engine/serve/daemon/tenant_sessions.h"
#include "wire/caches.h"

namespace pagoda {

// The bundled engine over a daemon's cache. If the daemon goes away, the engine reconnects: it
// opens another session and keeps its weights. A request that was under way then runs again from
// the beginning. Blocks that the daemon has kept are reused. The tokens are the same, because
// sampling depends only on the request, so the caller gets each token once. Thread-safe.
class ConnectedEngine final : public Generator {
 public:
  struct Options {
    GrpcCacheClientOptions client;  // Without on_session_over.
    // If set, the engine opens the cache that `client` names, with its model's layout, unless the
    // cache exists. `host` is the share of the daemon's host memory for clients' caches that it
    // takes.
    struct BroughtCache {
      uint32_t tokens_per_block = 16;
      DType kv_dtype = DType::kFloat32;
      TierWish host;
    };
    std::optional<BroughtCache> brings;
    Engine::Options engine;
    // How long to search for a daemon that went away.
    absl::Duration reconnect = absl::Seconds(60);
    // How long to ask a daemon again that refuses the first session because it is busy.
    absl::Duration patience = absl::ZeroDuration();
    // Receives messages for people about the connection, on any thread.
    std::function<void(const std::string&)> say;
    // Called on any thread when no daemon was found within `reconnect`, or another error ends the
    // search. Later requests search again. Must not use the engine.
    std::function<void(const absl::Status&)> on_lost;
  };

  // Errors: those of OpenGrpcCacheClient and of Engine::Create. INVALID_ARGUMENT if the daemon's
  // cache is for another model; the message names both models.
  static absl::StatusOr<std::unique_ptr<ConnectedEngine>> Create(Options options);
  // Ends the remaining requests with CANCELLED.
  ~ConnectedEngine() override;

  // Does what Engine::Submit does. The report's times start at the call, and include earlier runs
  // and reconnects. A request of a tenant runs in a session that is opened with the request's token
  // (TenantSessions). If the daemon goes away, the request runs again. Errors, besides those of
  // Engine::Submit: CANCELLED after Interrupt. Errors through `on_end`, besides: those of
  // TenantSessions::Get; UNAVAILABLE if no daemon is found.
  absl::Status Submit(GenerateRequest request, TokenCallback on_token, EndCallback on_end) override;
  absl::Status Check(const GenerateRequest& request) const override {
    return engine_->Check(request);
  }
  absl::Status CheckFiles() const override { return engine_->CheckFiles(); }
  const ModelConfig& model() const override { return engine_->model(); }
  absl::Span<const NamedAdapter> adapters() const override { return engine_->adapters(); }
  EngineStats Stats() const override { return engine_->Stats(); }

  // See Engine::SaveKv and Engine::LoadKv.
  absl::StatusOr<KvFileReport> SaveKv(const NamespaceKey& name_space,
                                      absl::Span<const TokenId> tokens, const std::string& path) {
    return engine_->SaveKv(name_space, tokens, path);
  }
  absl::StatusOr<KvFileReport> LoadKv(const NamespaceKey& name_space, const std::string& path) {
    return engine_->LoadKv(name_space, path);
  }

  // The name of the daemon's cache.
  std::string cache_name() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the engine has a session with a daemon, as far as it knows.
  bool connected() const;
  // Asks the daemon whether it still knows the session; connected() says so afterwards. Waits for
  // the answer for `timeout`.
  void Probe(absl::Duration timeout);

  // Ends all running and later requests with CANCELLED.
  void Interrupt() ABSL_LOCKS_EXCLUDED(mutex_);

  std::string description() const { return engine_->description(); }
  // See Engine::gpu_report.
  const std::optional<GpuSelfTestReport>& gpu_report() const { return engine_->gpu_report(); }

 private:
  // A request, from Submit to its end. The engine's callbacks share it.
  struct Run;
  using RunPtr = std::shared_ptr<Run>;

  explicit ConnectedEngine(Options options) : options_(std::move(options)) {}

  // Hands the request to the engine. It waits in the engine's queue until it has its tenant's
  // session.
  absl::Status Start(const RunPtr& run);
  // The engine has ended the run: the request ends too, or starts again.
  void End(const RunPtr& run, absl::StatusOr<GenerateReport> report);
  // What still looks for the session or the prompt of a run that has ended keeps memory without a
  // place in the queue. So it ends with the run.
  void StopPreparing(const RunPtr& run) ABSL_LOCKS_EXCLUDED(mutex_);
  void CancelFetch(TenantSessions::SessionPtr session, uint64_t fetch) ABSL_LOCKS_EXCLUDED(mutex_);

  // A request that waits in the engine until the reconnecting thread has found its session.
  struct Unprepared {
    RunPtr run;
    NamespaceKey name_space;
    Engine::PreparedCallback done;
  };
  // The reconnecting thread: it opens a new session when the old one is over, and finds the
  // sessions of requests.
  void Reconnect();
  // The session `over` is over: the reconnecting thread opens another one.
  void LookAgain(int over) ABSL_LOCKS_EXCLUDED(mutex_);
  void Prepare(const Unprepared& waiting) ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasEnded(const Run& run) const ABSL_LOCKS_EXCLUDED(mutex_);
  // The error of a search for a daemon that has just ended; OK if there was none.
  absl::Status KnownOutcome(int session) const;
  // After the request's session was lost: makes sure that the daemon can open another one.
  absl::Status Repair(const RunPtr& run);
  // Finds or opens the session of the request's tenant; null is the engine's own.
  absl::StatusOr<TenantSessions::SessionPtr> FindSession(const RunPtr& run);
  // Unless another session has been opened meanwhile: `session` is the caller's last one. Retries
  // with growing pauses for up to `options.reconnect`. `why` is the error that ended the old
  // session. Errors: UNAVAILABLE, without a reason, if no daemon opened a session; CANCELLED. An
  // error that a retry cannot repair, such as INVALID_ARGUMENT, is returned at once.
  // `run`, if given: ends the search when the request has ended.
  absl::Status ReconnectFrom(int session, const absl::Status& why, const RunPtr& run = nullptr);
  // A session, and what comes with it. It counts after Keep.
  struct Opened {
    std::unique_ptr<CacheClient> client;
    std::shared_ptr<TenantSessions> sessions;
  };
  absl::StatusOr<Opened> Open(absl::Duration timeout);
  void Keep(std::shared_ptr<TenantSessions> sessions) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<TenantSessions::Session> OpenOwn(absl::Duration timeout);
  GrpcCacheClientOptions OptionsFor(const std::string& cache, const std::string& tenant,
                                    const std::string& token) const;
  absl::StatusOr<TenantSessions::Session> OpenFor(const std::string& cache,
                                                  const std::string& tenant,
                                                  const std::string& token) const;
  // Opens the cache of `options.brings`, or finds it.
  absl::Status BringCache(absl::Duration timeout) const;
  absl::Status OpenAndAttach(absl::Duration timeout);
  // Whether another machine may have the request's blocks.
  bool MayFetch(const GenerateRequest& request) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Brings the prompt's blocks into the cache from other machines, if one has them. Does not block.
  void FetchPrompt(const RunPtr& run, const NamespaceKey& name_space, Engine::PreparedCallback done)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Once for each fetch: at its end, or at Interrupt, which waits for no fetch.
  void EndFetch(uint64_t number, uint32_t tokens) ABSL_LOCKS_EXCLUDED(mutex_);
  std::shared_ptr<TenantSessions> sessions() const ABSL_LOCKS_EXCLUDED(mutex_);

  // A search for a daemon that found none.
  struct Search {
    int session = 0;  // The one that was lost.
    absl::Time holds_until = absl::InfinitePast();
    absl::Status outcome;
  };

  const Options options_;
  absl::Notification interrupted_;
  // Sessions are numbered from 1. `over_` is the last one that a keep-alive call found to be over.
  std::atomic<int> session_ = 0;
  std::atomic<int> over_ = 0;
  std::atomic<bool> answers_ = true;  // Whether the daemon answered the last Probe.
  mutable absl::Mutex mutex_;
  // The prompts that are being fetched: what is to be called at the end of each.
  std::map<uint64_t, Engine::PreparedCallback> fetches_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_fetch_ ABSL_GUARDED_BY(mutex_) = 0;
  // Whether the daemon may have a store: until it answers that it has none.
  std::atomic<bool> may_have_store_ = true;
  // The tenants' sessions that belong to the engine's last session; null before the first one.
  // Their fetches use the members above.
  std::shared_ptr<TenantSessions> sessions_ ABSL_GUARDED_BY(mutex_);
  // For the reconnecting thread, by tenant. None is empty.
  std::map<std::string, std::deque<Unprepared>> unprepared_ ABSL_GUARDED_BY(mutex_);
  // For the reconnecting thread.
  std::vector<TenantSessions::SessionPtr> unused_ ABSL_GUARDED_BY(mutex_);
  // For the reconnecting thread: the engine's own session is over.
  bool look_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Both are used by the reconnecting thread.
  Search search_;
  // When it began to search for the next session, and after which one.
  std::pair<int, absl::Time> search_begun_ = {-1, absl::InfinitePast()};
  // Its client and its callbacks use the others, and a callback can use it while it ends.
  std::unique_ptr<Engine> engine_;
  Thread reconnecting_;  // Last: it uses the others.
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SERVE_DAEMON_CONNECTED_ENGINE_H_

#ifndef PAGODA_ENGINE_SERVE_CONNECTED_ENGINE_H_
#define PAGODA_ENGINE_SERVE_CONNECTED_ENGINE_H_

#include <atomic>
#include <functional>
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
#include "clients/cpp/grpc_cache_client.h"
#include "clients/cpp/prefix_fetcher.h"
#include "engine/engine.h"
#include "wire/caches.h"

namespace pagoda {

struct Generated {
  std::vector<std::vector<TokenId>> tokens;  // By sample.
  GenerateReport report;  // Its times start at the call and include earlier runs and reconnects.
};

// The bundled engine over a daemon's cache. If the daemon goes away, the engine reconnects: it
// opens another session and keeps its weights. A request that was under way then runs again from
// the beginning. Blocks that the daemon has kept are reused. The tokens are the same, because
// sampling depends only on the request. Thread-compatible; exceptions are noted.
class ConnectedEngine {
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
    KvMode kv = KvMode::kPaged;  // kBasic: without a daemon; the client's options are ignored.
    absl::Duration reconnect = absl::Seconds(60);  // How long to look for a daemon that went away.
    // Receives messages for people about the connection, on the caller's thread.
    std::function<void(const std::string&)> say;
    // Called on any thread when session_over() becomes true, so that a caller that waits for
    // requests can reconnect. Must not use the engine.
    std::function<void()> on_session_over;
  };

  // Errors: those of OpenGrpcCacheClient and of Engine::Create. INVALID_ARGUMENT if the daemon's
  // cache is for another model; the message names both models.
  static absl::StatusOr<std::unique_ptr<ConnectedEngine>> Create(Options options);

  // Errors: those of Engine::Generate; CANCELLED after Interrupt; those of Reconnect.
  absl::StatusOr<Generated> Generate(GenerateRequest request);

  // See Engine::SaveKv and Engine::LoadKv.
  absl::StatusOr<KvFileReport> SaveKv(const NamespaceKey& name_space,
                                      absl::Span<const TokenId> tokens, const std::string& path) {
    return engine_->SaveKv(name_space, tokens, path);
  }
  absl::StatusOr<KvFileReport> LoadKv(const NamespaceKey& name_space, const std::string& path) {
    return engine_->LoadKv(name_space, path);
  }

  // Whether a keep-alive call learned that the session is over. Thread-safe.
  bool session_over() const;

  // Opens another session. Retries with growing pauses for up to `options.reconnect`. `why` is the
  // error that ended the old session. Errors: UNAVAILABLE, without a reason, if no daemon opened a
  // session; CANCELLED. An error that a retry cannot repair, such as INVALID_ARGUMENT, is returned
  // at once.
  absl::Status Reconnect(const absl::Status& why);

  // Ends all running and later requests with CANCELLED. Thread-safe.
  void Interrupt();

  const ModelConfig& model() const { return engine_->model(); }
  std::string description() const { return engine_->description(); }
  // See Engine::gpu_report.
  const std::optional<GpuSelfTestReport>& gpu_report() const { return engine_->gpu_report(); }

 private:
  explicit ConnectedEngine(Options options) : options_(std::move(options)) {}

  // Reconnects unless another request has already done so: `session` is the caller's last session.
  absl::Status ReconnectFrom(int session, const absl::Status& why);
  absl::StatusOr<std::unique_ptr<CacheClient>> OpenSession(absl::Duration timeout);
  absl::StatusOr<std::unique_ptr<CacheClient>> OpenBasicCache() const;
  // Opens the cache of `options.brings`, or finds it.
  absl::Status BringCache(absl::Duration timeout) const;
  absl::Status OpenAndAttach(absl::Duration timeout);
  // As Engine::Options::fetch_prompt.
  void FetchPrompt(const GenerateRequest& request, std::function<void(uint32_t)> done)
      ABSL_LOCKS_EXCLUDED(fetcher_mutex_);

  const Options options_;
  absl::Notification interrupted_;
  absl::Mutex reconnecting_;  // Held while a new session is being opened.
  // Sessions are numbered from 1. `over_` is the last one that a keep-alive call found to be over.
  std::atomic<int> session_ = 0;
  std::atomic<int> over_ = 0;
  absl::Mutex fetcher_mutex_;
  // Of the last session; shared with the calls of FetchPrompt.
  std::shared_ptr<PrefixFetcher> fetcher_ ABSL_GUARDED_BY(fetcher_mutex_);
  // Whether the daemon may have a store: until it answers that it has none.
  std::atomic<bool> may_have_store_ = true;
  std::unique_ptr<Engine> engine_;  // Last: its client uses the others.
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SERVE_CONNECTED_ENGINE_H_

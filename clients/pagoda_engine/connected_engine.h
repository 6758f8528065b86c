#ifndef PAGODA_CLIENTS_PAGODA_ENGINE_CONNECTED_ENGINE_H_
#define PAGODA_CLIENTS_PAGODA_ENGINE_CONNECTED_ENGINE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "clients/cpp/grpc_cache_client.h"
#include "engine/engine.h"
#include "wire/caches.h"

namespace pagoda {

struct Generated {
  std::vector<std::vector<TokenId>> tokens;  // By sample.
  GenerateReport report;  // Its times count from the call, whatever came between.
};

// The bundled engine over the cache of a daemon, which it finds again where the daemon goes away:
// in another session, with the same weights. A request that was under way then runs again from its
// beginning; what the daemon has kept of it is not computed twice, and the tokens are the same,
// because what is drawn depends on the request alone. Thread-compatible but where it says
// otherwise.
class ConnectedEngine {
 public:
  struct Options {
    GrpcCacheClientOptions client;  // Without on_session_over.
    // With it the engine opens the cache that `client` names, for its model, where it is not there:
    // of blocks of so many tokens, in so much of the daemon's host memory for caches.
    struct BroughtCache {
      uint32_t tokens_per_block = 16;
      DType kv_dtype = DType::kFloat32;
      TierWish host;
    };
    std::optional<BroughtCache> brings;
    Engine::Options engine;
    KvMode kv = KvMode::kPaged;  // kBasic: without a daemon; the client's options mean nothing.
    absl::Duration reconnect = absl::Seconds(60);  // How long to look for a daemon that went away.
    // Told what happens to the connection, a sentence for people, on the caller's thread.
    std::function<void(const std::string&)> say;
    // Called on any thread when session_over() became true, so that one who waits for requests
    // reconnects. Must not use the engine.
    std::function<void()> on_session_over;
  };

  // Errors: those of OpenGrpcCacheClient and of Engine::Create; INVALID_ARGUMENT names both models
  // where the daemon's cache is for another one.
  static absl::StatusOr<std::unique_ptr<ConnectedEngine>> Create(Options options);

  // Errors: those of Engine::Generate; CANCELLED after Interrupt; those of Reconnect.
  absl::StatusOr<Generated> Generate(GenerateRequest request);

  // See Engine::SaveKv and Engine::LoadKv. What a request of that salt finds.
  absl::StatusOr<KvFileReport> SaveKv(const NamespaceKey& name_space,
                                      absl::Span<const TokenId> tokens, const std::string& path) {
    return engine_->SaveKv(name_space, tokens, path);
  }
  absl::StatusOr<KvFileReport> LoadKv(const NamespaceKey& name_space, const std::string& path) {
    return engine_->LoadKv(name_space, path);
  }

  // Whether a sign of life learned that the session is no more. Thread-safe.
  bool session_over() const;

  // Opens another session, and tries again with growing pauses for as long as `options.reconnect`.
  // `why` is what was learned of the old one. Errors: UNAVAILABLE, without a reason, where no
  // daemon gave a session; CANCELLED; at once whatever time will not mend, such as
  // INVALID_ARGUMENT.
  absl::Status Reconnect(const absl::Status& why);

  // Ends what runs, and whatever comes later, with CANCELLED. Thread-safe.
  void Interrupt();

  const ModelConfig& model() const { return engine_->model(); }
  std::string description() const { return engine_->description(); }
  // As Engine::gpu_report.
  const std::optional<GpuSelfTestReport>& gpu_report() const { return engine_->gpu_report(); }

 private:
  explicit ConnectedEngine(Options options) : options_(std::move(options)) {}

  // Reconnect, where `session` is still the last one.
  absl::Status ReconnectFrom(int session, const absl::Status& why);
  absl::StatusOr<std::unique_ptr<CacheClient>> OpenSession(absl::Duration timeout);
  absl::StatusOr<std::unique_ptr<CacheClient>> OpenBasicCache() const;
  // Opens the cache that the engine brings, or finds it.
  absl::Status BringCache(absl::Duration timeout) const;
  absl::Status OpenAndAttach(absl::Duration timeout);

  const Options options_;
  absl::Notification interrupted_;
  absl::Mutex reconnecting_;  // Held while a session is looked for.
  // Sessions are numbered from 1; signs of life tell which ones are over.
  std::atomic<int> session_ = 0;
  std::atomic<int> over_ = 0;
  std::unique_ptr<Engine> engine_;  // Last: its client uses the others.
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_ENGINE_CONNECTED_ENGINE_H_

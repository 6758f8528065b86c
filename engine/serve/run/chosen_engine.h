#ifndef PAGODA_ENGINE_SERVE_RUN_CHOSEN_ENGINE_H_
#define PAGODA_ENGINE_SERVE_RUN_CHOSEN_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/serve/daemon/connected_engine.h"
#include "engine/serve/local/local_engine.h"
#include "engine/serve/run/program_options.h"

namespace pagoda {

// The engine that the options choose: over a daemon's cache, or with its KV in this process.
// Thread-safe.
class ChosenEngine {
 public:
  struct Watch {
    // See Engine::Options::on_load and ConnectedEngine::Options::on_lost. May be empty.
    std::function<void(uint64_t bytes)> on_load = nullptr;
    std::function<void(const absl::Status&)> on_lost = nullptr;
  };

  // Errors: those of ConnectedEngine::Create and LocalEngine::Create; INVALID_ARGUMENT for
  // options.
  static absl::StatusOr<std::unique_ptr<ChosenEngine>> Open(const ProgramOptions& options,
                                                            Watch watch);
  // Before the first request: says what it is, and loads --load-kv. Errors: those of
  // Engine::LoadKv.
  absl::Status Begin(const ProgramOptions& options);

  Generator& generator();
  // The most tokens of a prompt with its answer.
  uint32_t context() const;
  // The most sequences that run at once, if that has a limit that the engine does not check.
  std::optional<uint32_t> max_sequences() const { return max_sequences_; }
  absl::StatusOr<KvFileReport> SaveKv(const NamespaceKey& name_space,
                                      absl::Span<const TokenId> tokens, const std::string& path);
  // Over a daemon's cache: ends all running and later requests with CANCELLED.
  void Interrupt();

 private:
  ChosenEngine() = default;

  std::optional<uint32_t> max_sequences_;
  // One of them.
  std::unique_ptr<ConnectedEngine> connected_;
  std::unique_ptr<LocalEngine> local_;
};

// The options of an engine over a daemon's cache. Errors: INVALID_ARGUMENT.
absl::StatusOr<ConnectedEngine::Options> ConnectedOptionsOf(const ProgramOptions& options);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SERVE_RUN_CHOSEN_ENGINE_H_

#include "engine/serve/run/chosen_engine.h"

#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "clients/command_line/options/cache_spec.h"
#include "clients/command_line/terminal/format.h"

namespace pagoda {
namespace {

// The most sequences at once with --kv flat and basic. Each sequence has memory for a whole
// context, which is taken as it is used.
constexpr uint32_t kLocalSequences = 8;

std::vector<AdapterFolder> AdaptersOf(const ProgramOptions& options) {
  std::vector<AdapterFolder> adapters;
  for (const std::string& text : options.adapters) {
    const size_t equals = text.find('=');
    adapters.push_back({.name = text.substr(0, equals), .path = text.substr(equals + 1)});
  }
  return adapters;
}

Engine::Options EngineOptionsOf(const ProgramOptions& options) {
  return {.model_dir = options.model_dir,
          .backend = options.backend,
          .gpu_attention = options.gpu_attention,
          .gpu_graphs = options.gpu_graphs,
          .gpu_report = std::nullopt,
          .cpu = {.num_threads = options.threads, .compute = options.compute},
          .adapters = AdaptersOf(options),
          .scheduler = {.max_step_tokens = options.max_step_tokens},
          .on_warning = SayAsEngine};
}

LocalEngine::Options LocalOptionsOf(const ProgramOptions& options) {
  return {.engine = EngineOptionsOf(options),
          .kv = options.kv,
          .kv_dtype = options.kv_dtype,
          .context = options.context,
          .cached_tokens = options.cached_tokens,
          .tokens_per_block = options.tokens_per_block,
          .max_sequences = options.requests.empty() ? 1 : kLocalSequences};
}

}  // namespace

absl::StatusOr<ConnectedEngine::Options> ConnectedOptionsOf(const ProgramOptions& options) {
  absl::StatusOr<ClientCredentials> credentials = CredentialsOf(options.credentials);
  if (!credentials.ok()) return credentials.status();
  std::optional<ConnectedEngine::Options::BroughtCache> brings;
  if (!options.open_cache.empty()) {
    const absl::StatusOr<v1::TierSize> host = ParseTierSize(options.open_cache, v1::MEDIUM_HOST);
    if (!host.ok()) return host.status();
    brings.emplace();
    brings->tokens_per_block = options.tokens_per_block;
    brings->kv_dtype = options.kv_dtype;
    brings->host.bytes = host->bytes();
    brings->host.free_permille = host->free_permille();
  }
  return ConnectedEngine::Options{.client = {.endpoint = options.endpoint,
                                             .client_name = options.client_name,
                                             .lease = absl::Seconds(options.lease_seconds),
                                             .timeout = absl::Seconds(options.timeout_seconds),
                                             .credentials = *std::move(credentials),
                                             .cache = options.cache},
                                  .brings = brings,
                                  .engine = EngineOptionsOf(options),
                                  .reconnect = absl::Seconds(options.reconnect_seconds),
                                  .say = SayAsEngine};
}

absl::StatusOr<std::unique_ptr<ChosenEngine>> ChosenEngine::Open(const ProgramOptions& options,
                                                                 Watch watch) {
  auto chosen = absl::WrapUnique(new ChosenEngine);
  if (options.local) {
    LocalEngine::Options local = LocalOptionsOf(options);
    if (local.kv != KvMode::kPaged) chosen->max_sequences_ = local.max_sequences;
    local.engine.on_load = std::move(watch.on_load);
    absl::StatusOr<std::unique_ptr<LocalEngine>> made = LocalEngine::Create(std::move(local));
    if (!made.ok()) return made.status();
    chosen->local_ = *std::move(made);
  } else {
    absl::StatusOr<ConnectedEngine::Options> connected = ConnectedOptionsOf(options);
    if (!connected.ok()) return connected.status();
    connected->engine.on_load = std::move(watch.on_load);
    connected->on_lost = std::move(watch.on_lost);
    absl::StatusOr<std::unique_ptr<ConnectedEngine>> made =
        ConnectedEngine::Create(*std::move(connected));
    if (!made.ok()) return made.status();
    chosen->connected_ = *std::move(made);
  }
  return chosen;
}

absl::Status ChosenEngine::Begin(const ProgramOptions& options) {
  SayAsEngine(local_ != nullptr ? local_->description() : connected_->description());
  const std::optional<GpuSelfTestReport>& report =
      local_ != nullptr ? local_->engine().gpu_report() : connected_->gpu_report();
  if (report.has_value()) {
    for (const GpuKernelResult& result : report->results) {
      SayAsEngine(absl::StrCat("self-test on ", report->device, ": ", Describe(result)));
    }
  }
  if (options.load_kv.empty()) return absl::OkStatus();
  const NamespaceKey name_space = {.cache_salt = options.sampling.salt};
  const absl::StatusOr<KvFileReport> loaded =
      local_ != nullptr ? local_->engine().LoadKv(name_space, options.load_kv)
                        : connected_->LoadKv(name_space, options.load_kv);
  if (!loaded.ok()) return loaded.status();
  SayAsEngine(absl::StrCat("loaded the KV of ", FormatCounted(loaded->tokens, "token"), " from ",
                           options.load_kv));
  return absl::OkStatus();
}

Generator& ChosenEngine::generator() {
  if (local_ != nullptr) return local_->engine();
  return *connected_;
}

uint32_t ChosenEngine::context() const {
  return local_ != nullptr ? local_->context() : connected_->model().max_position_embeddings;
}

absl::StatusOr<KvFileReport> ChosenEngine::SaveKv(const NamespaceKey& name_space,
                                                  absl::Span<const TokenId> tokens,
                                                  const std::string& path) {
  return local_ != nullptr ? local_->engine().SaveKv(name_space, tokens, path)
                           : connected_->SaveKv(name_space, tokens, path);
}

void ChosenEngine::Interrupt() {
  if (connected_ != nullptr) connected_->Interrupt();
}

}  // namespace pagoda

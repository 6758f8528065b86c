#include "server/config/engine_keys.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "server/config/listen_address.h"

namespace pagoda::server {
namespace {

// Where the engine listens by default.
constexpr char kGrpcAddress[] = "127.0.0.1:7074";
constexpr char kHttpAddress[] = "127.0.0.1:7076";

std::vector<ConfigKey> AdapterKeys(AdapterFolder* adapter) {
  return {TextKey("name", &adapter->name), TextKey("path", &adapter->path)};
}

absl::Status CheckEngineAddress(const std::string& address) {
  if (address == kEngineAddressAuto || address.empty()) return absl::OkStatus();
  return ParseAddress(address).status();
}

}  // namespace

std::vector<ConfigKey> EngineKeys(Config::Engine* engine) {
  return {TextKey("model_dir", &engine->model_dir),
          TextKey("unix_socket", &engine->unix_socket),
          TextKey("grpc_address", &engine->grpc_address, CheckEngineAddress),
          TextKey("http_address", &engine->http_address, CheckEngineAddress),
          ListKey("adapters", &engine->adapters, AdapterKeys, /*min_elements=*/0),
          ChoiceKey<EngineBackend>("backend", &engine->backend, EngineBackends()),
          ChoiceKey<GpuAttention>("gpu_attention", &engine->gpu_attention, GpuAttentions()),
          ChoiceKey<GpuGraphs>("gpu_graphs", &engine->gpu_graphs, GpuGraphChoices()),
          NumberKey("threads", &engine->threads, 0, 1024),
          ChoiceKey<ComputeType>("compute", &engine->compute, ComputeTypes()),
          NumberKey("max_step_tokens", &engine->max_step_tokens, 1, 1 << 20),
          NumberKey("max_running_sequences", &engine->max_running_sequences, 1, 1 << 16),
          NumberKey("max_waiting_requests", &engine->max_waiting_requests, 1, 1 << 20),
          NumberKey("max_waiting_bytes", &engine->max_waiting_bytes, 1 << 16, uint64_t{1} << 40),
          ChoiceKey<Preemption>("preemption", &engine->preemption, Preemptions())};
}

std::string Config::Engine::UnixSocket(const Server& server) const {
  if (unix_socket != kEngineAddressAuto) return unix_socket;
  return server.unix_socket.empty() ? "" : absl::StrCat(server.unix_socket, ".engine");
}

std::string Config::Engine::GrpcAddress(const Server& server) const {
  if (grpc_address != kEngineAddressAuto) return grpc_address;
  return server.grpc_address.empty() ? "" : kGrpcAddress;
}

std::string Config::Engine::HttpAddress(const Server& server) const {
  if (http_address != kEngineAddressAuto) return http_address;
  return server.http_address.empty() ? "" : kHttpAddress;
}

void ResolveEngineAddresses(Config& config) {
  Config::Engine& engine = config.engine;
  engine.unix_socket = engine.UnixSocket(config.server);
  engine.grpc_address = engine.GrpcAddress(config.server);
  engine.http_address = engine.HttpAddress(config.server);
}

}  // namespace pagoda::server

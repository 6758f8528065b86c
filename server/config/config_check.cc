// The checks of a configuration that concern several keys.
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/adapter_folders.h"
#include "base/engine_options.h"
#include "base/error.h"
#include "manager/accounts/tenants.h"
#include "server/config/config.h"
#include "server/config/listen_address.h"
#include "server/config/store_keys.h"
#include "server/config/zmq_endpoint.h"

namespace pagoda::server {
namespace {

// Plaintext would show cached content and callers' tokens to eavesdroppers on the network.
absl::Status CheckStaysHere(const std::string& key, const std::string& address,
                            const std::string& remedy, const std::string& permission) {
  if (address.empty()) return absl::OkStatus();
  const absl::StatusOr<TcpAddress> parsed = ParseAddress(address);
  if (!parsed.ok()) return parsed.status();
  if (IsLoopback(*parsed)) return absl::OkStatus();
  return InvalidArgument(absl::StrCat(
      key, " ", address, " would serve other machines without TLS: ", remedy,
      ", listen on loopback (127.0.0.1, [::1], localhost), or say ", permission, ": true"));
}

// `section`: the one that has the two addresses.
absl::Status CheckPlaintext(const std::string& section, const std::string& grpc_address,
                            const std::string& http_address, const Config::Server& server) {
  if (!server.insecure && !server.tls.enabled()) {
    absl::Status status = CheckStaysHere(section + ".grpc_address", grpc_address,
                                         "set server.tls.certificate and key", "server.insecure");
    if (!status.ok()) return status;
  }
  if (server.http_insecure) return absl::OkStatus();
  return CheckStaysHere(
      section + ".http_address", http_address,
      "HTTP has none, so put a proxy with TLS before it and configure tenants or operators "
      "(without them every client of the proxy is an operator)",
      "server.http_insecure");
}

// The engine is a client of the daemon: it needs the daemon's sockets, and has its own addresses.
absl::Status CheckEngineDoors(const Config& config) {
  const Config::Engine& engine = config.engine;
  if (engine.model_dir.empty()) return absl::OkStatus();
  if (config.server.unix_socket.empty() || config.server.MapSocketPath().empty()) {
    return InvalidArgument(
        "engine.model_dir needs server.unix_socket and server.map_socket: the engine is a process "
        "that reaches the cache through them");
  }
  const std::string grpc_address = engine.GrpcAddress(config.server);
  const std::string unix_socket = engine.UnixSocket(config.server);
  if (unix_socket.empty() && grpc_address.empty()) {
    return InvalidArgument(
        "engine.unix_socket and engine.grpc_address are both empty; gRPC needs one");
  }
  if (unix_socket == config.server.unix_socket) {
    return InvalidArgument("engine.unix_socket and server.unix_socket are the same");
  }
  return CheckPlaintext("engine", grpc_address, engine.HttpAddress(config.server), config.server);
}

// A reader of the stream sees the tokens of every tenant, and ZMQ checks no credentials.
absl::Status CheckZmq(const Config& config) {
  const Config::Events::Zmq& zmq = config.events.zmq;
  if (zmq.endpoint.empty() && !zmq.replay_endpoint.empty()) {
    return InvalidArgument("events.zmq.replay_endpoint is set, and events.zmq.endpoint is not");
  }
  for (const auto& [key, endpoint] :
       {std::pair("endpoint", &zmq.endpoint), std::pair("replay_endpoint", &zmq.replay_endpoint)}) {
    if (endpoint->empty() || config.server.insecure) continue;
    if (!StaysHere(*endpoint)) {
      return InvalidArgument(
          absl::StrCat("events.zmq.", key, " ", *endpoint,
                       " would show every tenant's tokens to other machines: use ipc://PATH, "
                       "tcp://[::1]:PORT, or tcp://127.0.0.1:PORT with events.zmq.mode: listen, "
                       "or say server.insecure: true"));
    }
    // If callers must show credentials, the mode of the socket's file is the least protection.
    if (config.knows_callers() && SocketFile(*endpoint).empty() && !IsInProcess(*endpoint)) {
      return InvalidArgument(absl::StrCat(
          "events.zmq.", key, " ", *endpoint,
          " would show every tenant's tokens to every process on this machine, although callers "
          "must show credentials: use ipc://PATH, whose file only the daemon's user and group may "
          "use, or say server.insecure: true"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTls(const Config::Server::Tls& tls) {
  if (tls.certificate.empty() != tls.key.empty()) {
    return InvalidArgument(
        "server.tls.certificate and server.tls.key go together; one of them is empty");
  }
  if (!tls.enabled() && !tls.client_ca.empty()) {
    return InvalidArgument("server.tls.client_ca needs TLS, and server.tls.certificate is empty");
  }
  if (tls.client_ca.empty() != (tls.client_certificates == ClientCertificates::kNone)) {
    return InvalidArgument(
        "server.tls.client_ca and server.tls.client_certificates (optional, required) go together");
  }
  return absl::OkStatus();
}

// Every name and subject stands for one caller.
absl::Status CheckCallers(const Config& config) {
  if (config.tenants.size() > kMaxTenants) {
    return InvalidArgument(absl::StrCat(config.tenants.size(), " tenants; at most ", kMaxTenants));
  }
  std::set<std::string> names;
  std::vector<std::string> subjects = config.operators.subjects;
  for (const Config::Tenant& tenant : config.tenants) {
    if (tenant.name.empty()) return InvalidArgument("a tenant has no name");
    if (tenant.name == kDefaultTenantLabel) {
      return InvalidArgument(absl::StrCat("no tenant can be called '", kDefaultTenantLabel, "'"));
    }
    if (!names.insert(tenant.name).second) {
      return InvalidArgument(absl::StrCat("there are two tenants '", tenant.name, "'"));
    }
    const std::vector<std::string>& more = tenant.credentials.subjects;
    subjects.insert(subjects.end(), more.begin(), more.end());
  }
  std::set<std::string> seen;
  for (const std::string& subject : subjects) {
    if (subject.empty()) return InvalidArgument("a subject is empty");
    if (!seen.insert(subject).second) {
      return InvalidArgument(absl::StrCat("the subject '", subject, "' stands for two callers"));
    }
  }
  if (!subjects.empty() && config.server.tls.client_certificates == ClientCertificates::kNone) {
    return InvalidArgument(
        "subjects are names in client certificates, and "
        "server.tls.client_certificates is none");
  }
  return absl::OkStatus();
}

// The configuration names the model of the cache's KV once.
absl::Status CheckModel(const Config& config) {
  const Config::Cache::Model& model = config.cache.model;
  if (model.name.empty() && !model.revision.empty()) {
    return InvalidArgument("cache.model.revision is set, and cache.model.name is empty");
  }
  const bool has_folder = !config.cache.model_dir.empty() || !config.engine.model_dir.empty();
  if (!model.name.empty() && has_folder) {
    return InvalidArgument(
        "cache.model names the model of cache.layers; with cache.model_dir or engine.model_dir, "
        "the weights in the folder identify the model");
  }
  if (config.cache.outlives_daemon() && model.name.empty() && !has_folder) {
    return InvalidArgument(
        absl::StrCat(config.cache.warm_restart ? "cache.warm_restart" : "a tier on disk",
                     " keeps KV for later daemons, and the KV's model is not configured: set "
                     "cache.model.name, or cache.model_dir or engine.model_dir"));
  }
  return absl::OkStatus();
}

absl::Status CheckAdapters(const Config& config) {
  const Config::Engine& engine = config.engine;
  if (engine.adapters.empty()) return absl::OkStatus();
  if (engine.model_dir.empty()) {
    return InvalidArgument("engine.adapters needs engine.model_dir, the model that they change");
  }
  if (absl::Status status = CheckAdapterFolders(engine.adapters); !status.ok()) {
    return InvalidArgument(absl::StrCat("engine.adapters: ", status.message()));
  }
  const std::string model = ModelName(engine.model_dir);
  for (const AdapterFolder& adapter : engine.adapters) {
    if (adapter.name != model) continue;
    return InvalidArgument(
        absl::StrCat("engine.adapters: '", model, "' is the model's own name; say another one"));
  }
  return absl::OkStatus();
}

// An engine computes on the device that holds its KV.
absl::Status CheckEngineBackend(const Config& config) {
  const Config::Engine& engine = config.engine;
  if (engine.model_dir.empty()) return absl::OkStatus();
  // The engine certainly computes on the host. With auto it reports the conflict when it starts.
  const bool on_cpu =
      NeedsHostPools(engine.backend) || config.cache.primary_memory == PrimaryMemory::kHost;
  if (on_cpu && engine.backend != EngineBackend::kCuda &&
      engine.gpu_attention != GpuAttention::kAuto) {
    return InvalidArgument(
        absl::StrCat("engine.gpu_attention is ", NameOf(GpuAttentions(), engine.gpu_attention),
                     ", and the engine computes on the CPU: say auto, or backend: cuda"));
  }
  if (NeedsHostPools(engine.backend) && config.cache.primary_memory == PrimaryMemory::kCuda) {
    return InvalidArgument(
        absl::StrCat("engine.backend is ", NameOf(EngineBackends(), engine.backend),
                     " and cache.primary_memory is cuda; the CPU cannot access GPU "
                     "memory: say primary_memory: host (auto then means host), or backend: cuda"));
  }
  if (engine.backend != EngineBackend::kCuda) return absl::OkStatus();
  if (config.cache.primary_memory == PrimaryMemory::kHost) {
    return InvalidArgument(
        "engine.backend is cuda and cache.primary_memory is host; an engine on a GPU needs the "
        "primary tier there: say primary_memory: cuda (auto then means cuda), or backend: cpu");
  }
  if (config.cache.warm_restart) {
    return InvalidArgument(
        "engine.backend is cuda and cache.warm_restart is true; GPU memory ends with the daemon: "
        "say backend: cpu, or no warm_restart");
  }
  return absl::OkStatus();
}

// A cache that outlives the daemon needs the primary tier in host memory.
absl::Status CheckPrimaryMemory(const Config& config) {
  if (config.cache.primary_memory != PrimaryMemory::kCuda) return absl::OkStatus();
  if (config.cache.warm_restart) {
    return InvalidArgument(
        "cache.primary_memory is cuda and cache.warm_restart is true; GPU memory ends with the "
        "daemon: say host, or auto, which then means host");
  }
  return absl::OkStatus();
}

absl::Status CheckTierList(const Config::Cache& cache) {
  const std::vector<Config::Cache::TierConfig> tiers = cache.AllTiers();
  if (tiers.size() > kMaxTiers) {
    return InvalidArgument(
        absl::StrCat("cache.tiers has ", tiers.size(), " tiers; at most ", kMaxTiers));
  }
  std::set<std::string> names;
  for (const Config::Cache::TierConfig& tier : tiers) {
    if (!names.insert(tier.name).second) {
      return InvalidArgument(absl::StrCat("cache.tiers has two tiers '", tier.name, "'"));
    }
    const bool is_first = names.size() == 1;
    if (is_first ? tier.on_disk() : tier.medium == Medium::kGpu) {
      return InvalidArgument(absl::StrCat("cache.tiers: tier '", tier.name, "' is ",
                                          is_first
                                              ? "the first, where engines compute, and is on disk"
                                              : "not the first, and is in GPU memory"));
    }
    if (tier.on_disk() && std::holds_alternative<FractionBudget>(tier.size)) {
      return InvalidArgument(absl::StrCat("cache.tiers: tier '", tier.name,
                                          "' is a share of a disk; say bytes or blocks"));
    }
    if (tier.on_disk() && names.size() < tiers.size()) {
      return InvalidArgument(
          absl::StrCat("cache.tiers: tier '", tier.name,
                       "' is on disk and not the last; only the last tier can be on "
                       "disk"));
    }
  }
  return absl::OkStatus();
}

// A block is written only if its tokens and its namespace's names fit the record that describes it.
// This power of two leaves space for the names.
constexpr uint32_t kMaxDiskBlockTokens = 512;

bool HoldsNothing(const TierBudget& budget) {
  if (const auto* bytes = std::get_if<ByteBudget>(&budget)) return bytes->bytes == 0;
  const auto* blocks = std::get_if<BlockBudget>(&budget);
  return blocks != nullptr && std::all_of(blocks->blocks.begin(), blocks->blocks.end(),
                                          [](uint32_t count) { return count == 0; });
}

// The tier on disk, if there is one.
absl::Status CheckDiskTier(const Config& config) {
  const Config::Cache& cache = config.cache;
  if (!cache.has_disk()) return absl::OkStatus();
  const std::vector<Config::Cache::TierConfig> tiers = cache.AllTiers();
  const std::string tier = absl::StrCat("cache.tiers: tier '", tiers.back().name, "'");
  if (tiers.back().path.empty()) {
    return InvalidArgument(
        absl::StrCat(tier, " is on disk and has no path: the folder of its files"));
  }
  if (HoldsNothing(tiers.back().size)) {
    return InvalidArgument(absl::StrCat(tier, " is on disk and has no size; say bytes or blocks"));
  }
  if (cache.tokens_per_block > kMaxDiskBlockTokens) {
    return InvalidArgument(absl::StrCat(tier, " is on disk and cache.tokens_per_block is ",
                                        cache.tokens_per_block, "; a disk takes blocks of at most ",
                                        kMaxDiskBlockTokens, " tokens"));
  }
  const bool engine_on_gpu =
      !config.engine.model_dir.empty() && config.engine.backend == EngineBackend::kCuda;
  if (tiers.size() == 2 && (cache.primary_memory == PrimaryMemory::kCuda || engine_on_gpu)) {
    return InvalidArgument(
        absl::StrCat(tier,
                     " is on disk right below a tier in GPU memory; it needs a tier in "
                     "host memory between the two"));
  }
  return absl::OkStatus();
}

// A quota names an existing tier, and each tier has one quota.
absl::Status CheckQuotas(const Config& config) {
  const std::vector<Config::Cache::TierConfig> tiers = config.cache.AllTiers();
  for (const Config::Tenant& tenant : config.tenants) {
    std::set<std::string> seen;
    if (tenant.quota.primary_blocks > 0) seen.insert(tiers[0].name);
    for (const Config::Quota::OfTier& quota : tenant.quota.tiers) {
      const bool known = std::any_of(tiers.begin(), tiers.end(),
                                     [&](const auto& tier) { return tier.name == quota.tier; });
      if (!known) {
        return InvalidArgument(absl::StrCat("tenant '", tenant.name, "' has a quota for the tier '",
                                            quota.tier, "', which the cache does not have"));
      }
      if (!seen.insert(quota.tier).second) {
        return InvalidArgument(absl::StrCat("tenant '", tenant.name,
                                            "' has two quotas for the tier '", quota.tier, "'"));
      }
    }
  }
  return absl::OkStatus();
}

// The memory for clients' caches, and the features that need a cache of the daemon's own.
absl::Status CheckMemory(const Config& config) {
  const Config::Memory::Disk& disk = config.memory.disk;
  if ((disk.size > 0) != !disk.path.empty()) {
    return InvalidArgument(
        "memory.disk.size and memory.disk.path go together; one of them is missing");
  }
  if (disk.size > 0 && config.memory.host == 0) {
    return InvalidArgument(
        "memory.disk is set and memory.host is not; a disk takes blocks only from host memory");
  }
  if (config.memory.warm_restart && !config.memory.any()) {
    return InvalidArgument(
        "memory.warm_restart is set, and memory has no bytes for clients' caches");
  }
  if (config.memory.warm_restart && config.memory.reservation == Reservation::kSparse) {
    return InvalidArgument(
        "memory.warm_restart is true and memory.reservation is sparse; a warm restart needs "
        "reservation: whole");
  }
  if (config.own_cache) return absl::OkStatus();
  if (!config.engine.model_dir.empty()) {
    return InvalidArgument(
        "engine.model_dir needs a cache in the configuration: add a section cache");
  }
  if (!config.events.zmq.endpoint.empty() || config.events.smg.enabled) {
    return InvalidArgument(
        "events.zmq and events.smg publish the events of the configuration's own cache, and there "
        "is none: add a section cache");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateConfig(const Config& config) {
  if (config.server.unix_socket.empty() && config.server.grpc_address.empty()) {
    return InvalidArgument(
        "server.unix_socket and server.grpc_address are both empty; gRPC needs one");
  }
  if (config.sessions.default_lease > config.sessions.max_lease) {
    return InvalidArgument(absl::StrCat(
        "sessions.default_lease ", absl::FormatDuration(config.sessions.default_lease),
        " is above sessions.max_lease ", absl::FormatDuration(config.sessions.max_lease)));
  }
  if (!config.cache.model_dir.empty() && !config.engine.model_dir.empty()) {
    return InvalidArgument(
        "cache.model_dir and engine.model_dir are both set; the daemon's own engine brings the "
        "cache's layers");
  }
  if (absl::Status status = CheckMemory(config); !status.ok()) return status;
  if (absl::Status status = CheckTierList(config.cache); !status.ok()) return status;
  if (absl::Status status = CheckDiskTier(config); !status.ok()) return status;
  if (absl::Status status = CheckModel(config); !status.ok()) return status;
  if (absl::Status status = CheckQuotas(config); !status.ok()) return status;
  if (absl::Status status = CheckAdapters(config); !status.ok()) return status;
  if (absl::Status status = CheckEngineBackend(config); !status.ok()) return status;
  if (absl::Status status = CheckPrimaryMemory(config); !status.ok()) return status;
  if (absl::Status status = CheckTls(config.server.tls); !status.ok()) return status;
  if (absl::Status status = CheckPlaintext("server", config.server.grpc_address,
                                           config.server.http_address, config.server);
      !status.ok()) {
    return status;
  }
  if (absl::Status status = CheckEngineDoors(config); !status.ok()) return status;
  if (absl::Status status = CheckZmq(config); !status.ok()) return status;
  if (absl::Status status = CheckStore(config); !status.ok()) return status;
  if (absl::Status status = CheckPeers(config); !status.ok()) return status;
  return CheckCallers(config);
}

}  // namespace pagoda::server

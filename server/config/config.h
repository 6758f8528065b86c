// The daemon's configuration, with the default of each key.
#ifndef PAGODA_SERVER_CONFIG_CONFIG_H_
#define PAGODA_SERVER_CONFIG_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/adapter_folders.h"
#include "base/engine_options.h"
#include "events/event.h"
#include "manager/words/lifecycle_events.h"
#include "pools/file/slab_file.h"
#include "pools/layout.h"
#include "pools/pool.h"
#include "pools/sizing.h"
#include "pools/types.h"
#include "server/config/zmq_endpoint.h"
#include "server/log/log.h"

namespace pagoda::server {

// "$XDG_RUNTIME_DIR/pagoda.sock", or "/tmp/pagoda.sock" if XDG_RUNTIME_DIR names no folder.
std::string DefaultUnixSocket();

// A value of server.map_socket: the path of the Unix socket followed by ".map", so that each daemon
// has another path. Without a Unix socket there is no map socket.
inline constexpr char kMapSocketAuto[] = "auto";
// A value of the engine's addresses.
inline constexpr char kEngineAddressAuto[] = "auto";
// A value of events.zmq.topic: "kv@POD@MODEL".
inline constexpr char kZmqTopicAuto[] = "auto";
// Whether a TLS client must show a certificate.
enum class ClientCertificates : uint8_t { kNone, kOptional, kRequired };

// The memory of the primary tier: a device's if one can be used, else the host's (kAuto); always
// the host's; always a device's.
enum class PrimaryMemory : uint8_t { kAuto, kHost, kCuda };

// The names, units and meanings are those of deploy/pagodad.yaml. The default needs no file, no
// model and no GPU.
struct Config {
  struct Cache {
    std::string name = "default";
    uint32_t tokens_per_block = 32;
    DType kv_dtype = DType::kFloat32;
    // One tier of the list `tiers`.
    struct TierConfig {
      std::string name;  // Empty: DefaultTierName().
      // None is "auto": PrimaryMemory decides for the first tier, and other tiers lie in the host's
      // memory.
      std::optional<Medium> medium;
      TierBudget size = BlockBudget{{0}};
      uint32_t min_priority = kDefaultPriority.value();
      uint32_t watermark_permille = 0;
      // The following keys apply to a tier on disk only.
      std::string path;                     // The folder of its files.
      uint64_t write_bytes_per_second = 0;  // 0: no limit.
      SlabFile::OnForeign on_foreign = SlabFile::OnForeign::kRefuse;
      EngineKind io = EngineKind::kAuto;
      bool direct = true;  // O_DIRECT, if the file system supports it.

      bool on_disk() const { return medium == Medium::kDisk; }
    };
    std::vector<TierConfig> tiers;  // Nearest first. Empty: the short forms below apply.
    // The short forms for two tiers: `primary`, `secondary`, and the tiers' keys in `offload`.
    TierBudget primary = BlockBudget{{1024}};
    TierBudget secondary = BlockBudget{{0}};  // None.
    PrimaryMemory primary_memory = PrimaryMemory::kAuto;
    uint32_t device = 0;                      // CUDA's index.
    Pinning pin_lower = Pinning::kRequired;   // Only used if the primary tier lies on a device.
    HugePages huge_pages = HugePages::kAuto;  // For pools in host memory.
    // Divides bytes between windows.
    struct Workload {
      uint32_t sequence_tokens = 8192;
      uint32_t chunk_tokens = 512;
    } workload;
    // The layers of a cache without a model folder, in the model's order. A model folder has its
    // own layers.
    struct Layers {
      uint32_t count = 4;
      uint32_t window = 0;        // 0: full attention.
      uint32_t num_kv_heads = 2;  // This and head_dim: not for opaque layers.
      uint32_t head_dim = 64;
      KvKind kind = KvKind::kKeyAndValue;
      uint64_t bytes_per_block = 0;  // For opaque layers only.

      bool opaque() const { return kind == KvKind::kOpaque; }
      // One of the layers, with elements of `dtype` unless it is opaque.
      LayerSpec Spec(DType dtype) const;
    };
    std::vector<Layers> layers = {{}};
    // The model of `layers`. It is part of the cache's identity, so that the cache does not serve
    // KV of another model with the same shape. Without a name, the cache cannot distinguish models.
    struct Model {
      std::string name;
      std::string revision;

      // The text of CacheInfo.model_fingerprint: "NAME@REVISION", "NAME", or "".
      std::string Identity() const { return revision.empty() ? name : name + "@" + revision; }
    } model;
    // The folder of a model whose layers and fingerprint the cache uses, for engines in other
    // processes. The model is not loaded. Empty: engine.model_dir, else `layers`.
    std::string model_dir;
    std::string eviction_policy;  // One of EvictionPolicyNames(); the default is the first.
    uint32_t max_holes = 0;       // 0: see BlockManager::Options.
    uint32_t pin_budget_permille = 250;
    bool warm_restart = false;
    struct Offload {
      uint32_t min_priority = kDefaultPriority.value();  // Short form: of the second tier.
      uint32_t watermark_permille = 0;                   // Short form: of the first tier.
      uint32_t copy_threads = 2;
    } offload;

    Cache();
    // The tiers of either form, each with its name. An empty tier of the short form is left out.
    std::vector<TierConfig> AllTiers() const;
    // Whether the last tier is on disk. No other tier may be.
    bool has_disk() const { return !tiers.empty() && tiers.back().on_disk(); }
    // Whether the cache outlives the daemon. Then the model of its KV must be known.
    bool outlives_daemon() const { return warm_restart || has_disk(); }
  } cache;

  // Whether the daemon opens the cache of `cache` at its start. False for a configuration that has
  // memory for clients' caches and describes no cache: the daemon then waits for clients.
  bool own_cache = true;

  // The memory for all caches that clients open, besides the daemon's own cache. All 0: clients can
  // open none.
  struct Memory {
    uint64_t gpu = 0;
    uint64_t host = 0;
    struct Disk {
      uint64_t size = 0;
      std::string path;                     // A folder that gets one folder for each cache.
      uint64_t write_bytes_per_second = 0;  // For each cache; 0: no limit.
    } disk;
    uint32_t max_caches = 64;
    absl::Duration linger = absl::Hours(1);  // How long a cache without sessions stays open.
    bool warm_restart = false;               // The same as cache.warm_restart, for these caches.
    Reservation reservation = Reservation::kWhole;  // How a cache's host memory is reserved.

    bool any() const { return gpu > 0 || host > 0 || disk.size > 0; }
  } memory;

  struct Server {
    std::string unix_socket = DefaultUnixSocket();  // Empty: none.
    std::string map_socket = kMapSocketAuto;        // Empty: none.
    std::string grpc_address = "127.0.0.1:7070";    // Empty: none.
    std::string http_address = "127.0.0.1:7071";    // Empty: none.
    std::string probe_address;                      // Empty: none.
    absl::Duration drain_timeout = absl::Seconds(10);
    uint32_t max_message_bytes = 16 << 20;
    // gRPC over TCP uses TLS if there is a certificate. The Unix socket never does.
    struct Tls {
      std::string certificate;  // A PEM file: the daemon's certificate, then its signers'.
      std::string key;
      std::string client_ca;  // A PEM file: the authorities that sign clients' certificates.
      ClientCertificates client_certificates = ClientCertificates::kNone;

      bool enabled() const { return !certificate.empty(); }
    } tls;
    bool insecure = false;       // Allows insecure gRPC, ZMQ and secret files.
    bool http_insecure = false;  // Allows HTTP for other machines.
    uint32_t max_sessions = 4096;
    // For all tenants together; see SequenceAccounts.
    uint32_t max_sequences = 65'536;
    uint64_t max_sequence_bytes = uint64_t{256} << 20;
    uint32_t max_calls = 8192;
    uint32_t max_calls_per_connection = 2048;
    uint64_t max_grpc_bytes = uint64_t{2} << 30;
    bool reflection = true;
    bool rings = true;  // Batches through shared memory, for clients on this machine.
    uint32_t max_http_generations = 16;

    // The absolute path that map_socket stands for; empty: none.
    std::string MapSocketPath() const;
  } server;

  // A store of blocks outside this machine: a Redis Cluster, Valkey, or one plain server.
  struct Store {
    std::vector<std::string> servers;  // "HOST:PORT". Empty: there is no store.
    // Where servers may be that the cluster names: ServerNetworks. Empty: near `servers`.
    std::vector<std::string> allowed_networks;
    std::string key_prefix = "pagoda:";
    std::string secret_file;  // Authenticates the values. Empty: they are not authenticated.
    std::string username;
    std::string password_file;
    // The daemon is the client of these connections.
    struct Tls {
      bool enabled = false;
      std::string ca;           // PEM files. Empty: the system's authorities.
      std::string certificate;  // The daemon's own, for servers that ask for one.
      std::string key;
    } tls;
    bool read_from_replicas = false;
    uint32_t connections = 2;  // To each server.
    uint32_t pipeline = 16;    // Operations in flight on each.
    // Which cached blocks are written to the store.
    struct Publish {
      bool enabled = true;
      uint32_t min_uses = 1;
      uint64_t bytes_per_second = 0;  // 0: no limit.
      absl::Duration time_to_live = absl::Hours(24);
      absl::Duration delay = absl::Milliseconds(200);
      std::vector<std::string> tenants;  // Empty: all.
    } publish;

    bool enabled() const { return !servers.empty(); }
  } store;

  // Other daemons.
  struct Peers {
    std::string address;      // Where this daemon answers them. Empty: it does not.
    std::string advertised;   // The same as they reach it. Empty: `address`.
    std::string tokens_file;  // One of which they must show. Empty: they need none.
    std::string certificate;  // PEM files. Empty: without TLS.
    std::string key;
    std::string client_ca;
    uint32_t max_connections = 256;
    // The daemons that clients can name as sources: see SourcePatterns. Empty: none.
    std::vector<std::string> sources;
    std::string source_token_file;  // The token that this daemon shows to them.
    Store::Tls source_tls;

    bool fetches() const { return !sources.empty(); }
    // The address for others. Empty: none.
    std::string AdvertisedAddress() const { return advertised.empty() ? address : advertised; }
  } peers;

  // Fetches from the store and from other daemons.
  struct Fetch {
    absl::Duration base = absl::Milliseconds(200);
    absl::Duration per_1k_tokens = absl::Milliseconds(100);
    uint32_t recompute_tokens_per_second = 0;  // 0: unknown, so each fetch is begun.
    uint32_t max_waiting = 1024;
  } fetch;

  // Whether blocks come from, or go to, other machines.
  bool exchanges() const { return store.enabled() || peers.fetches(); }

  // The credentials of a caller. Without tenants and operators, every caller may do everything.
  struct Credentials {
    std::string tokens_file;            // Empty: none.
    std::vector<std::string> subjects;  // Names in client certificates.

    bool empty() const { return tokens_file.empty() && subjects.empty(); }
  };
  struct Quota {
    uint32_t share = 1;
    // The most blocks of each window in a tier; 0: no limit.
    struct OfTier {
      std::string tier;  // The tier's name.
      uint32_t blocks = 0;
    };
    std::vector<OfTier> tiers;
    uint32_t primary_blocks = 0;  // The short form for the first tier.
    // The most sequences, and the most bytes that these keep besides their blocks. 0: only the
    // limit for all tenants applies.
    uint32_t max_sequences = 0;
    uint64_t max_sequence_bytes = 0;
  };
  // The most that a tenant's caches may take of each kind of memory. 0: only `memory` limits them.
  struct CacheMemory {
    uint64_t gpu = 0;
    uint64_t host = 0;
    uint64_t disk = 0;
  };
  struct Tenant {
    std::string name;
    Credentials credentials;
    bool shares = false;
    Quota quota;
    CacheMemory cache_memory;
    uint32_t max_priority = 0;  // The highest priority of its requests to the engine.
  };
  std::vector<Tenant> tenants;
  Credentials operators;
  uint32_t default_tenant_share = 1;

  // Whether callers must show credentials.
  bool knows_callers() const { return !tenants.empty() || !operators.empty(); }

  struct Sessions {
    absl::Duration default_lease = absl::Seconds(30);
    absl::Duration max_lease = absl::Hours(1);
    absl::Duration max_pin_lease = absl::Hours(24);
  } sessions;

  struct Events {
    uint64_t max_events = 1 << 20;
    uint64_t max_bytes = 256 << 20;
    LifecycleEvents lifecycle = LifecycleEvents::kRaw;
    absl::Duration progress_interval = absl::Seconds(1);
    absl::Duration flush_interval = absl::Milliseconds(2);

    // The events in the form of vLLM's ZMQ publisher; see bridges/zmq_bridge.h.
    struct Zmq {
      std::string endpoint;         // Empty: off.
      std::string replay_endpoint;  // Empty: no replays.
      ZmqMode mode = ZmqMode::kAuto;
      bool replay_topic = false;  // Whether the answers of a replay contain the topic.
      std::string topic = kZmqTopicAuto;
      std::string pod;    // Part of the topic; empty: the machine's name.
      std::string model;  // Part of the topic; empty: the cache's name.
      uint32_t data_parallel_rank = 0;
      uint32_t hwm = 1000;
      uint64_t subscriber_bytes = 1'536 << 10;
      uint32_t buffer_steps = 10'000;
      uint64_t buffer_bytes = 64 << 20;
    } zmq;

    // The events for the SMG gateway; see bridges/smg_service.h.
    struct Smg {
      bool enabled = false;
      uint32_t data_parallel_rank = 0;
      uint32_t buffer_steps = 10'000;
      uint64_t buffer_bytes = 64 << 20;
    } smg;
  } events;

  struct Metrics {
    bool tenants = false;  // Whether samples have a tenant label.
    uint32_t block_sample = 64;
  } metrics;

  // The bundled engine: a process of its own, which the daemon starts. Operators can also start one
  // (pagoda-engine --serve).
  struct Engine {
    std::string model_dir;  // Empty: no engine.
    // Its own addresses: gRPC on the first two, OpenAI's API on the third. Empty: none.
    // kEngineAddressAuto: see the functions below.
    std::string unix_socket = kEngineAddressAuto;
    std::string grpc_address = kEngineAddressAuto;
    std::string http_address = kEngineAddressAuto;
    std::vector<AdapterFolder> adapters;
    EngineBackend backend = EngineBackend::kAuto;
    GpuAttention gpu_attention = GpuAttention::kAuto;
    GpuGraphs gpu_graphs = GpuGraphs::kAuto;
    uint32_t threads = 0;  // 0: one for each processor.
    ComputeType compute = ComputeType::kAuto;
    uint32_t max_step_tokens = 512;
    uint32_t max_running_sequences = 256;
    uint32_t max_waiting_requests = 1024;             // The most waiting requests of all tenants,
    uint64_t max_waiting_bytes = uint64_t{64} << 20;  // and the most bytes of these requests.
    Preemption preemption = Preemption::kOffload;

    // What the addresses stand for; empty: none. By default the engine listens where the daemon
    // does: on the path of the daemon's Unix socket followed by ".engine", on 127.0.0.1:7074 if the
    // daemon has gRPC over TCP, and on 127.0.0.1:7076 if it has HTTP.
    std::string UnixSocket(const Server& server) const;
    std::string GrpcAddress(const Server& server) const;
    std::string HttpAddress(const Server& server) const;
  } engine;

  struct Log {
    LogLevel level = LogLevel::kInfo;
  } log;
};

// The most caches that memory.max_caches allows.
inline constexpr uint32_t kMaxCaches = 1024;

// The model's name as its users know it: the last part of its folder's path.
std::string ModelName(const std::string& model_dir);

// A cache's name is part of the names of shared memory and of folders. Errors: INVALID_ARGUMENT
// unless it has 1 to 64 letters, digits, '-', '_' or '.' and is neither "." nor "..".
absl::Status CheckCacheName(const std::string& name);

// Reads a YAML text. `file` is the name that errors carry.
// Errors: INVALID_ARGUMENT, "FILE:LINE: what is wrong; allowed: ...", for broken YAML, an unknown
// key, a wrong type or a bad value.
absl::StatusOr<Config> ParseConfig(const std::string& text, const std::string& file);
// Reads the file and does what ParseConfig does. Relative paths of files and folders are relative
// to the configuration's folder, except the sockets in `server`. Also NotFound for a file that
// cannot be read.
absl::StatusOr<Config> LoadConfig(const std::string& file);

// Checks the rules that concern several keys. Errors: INVALID_ARGUMENT.
// * The daemon is reachable. Plaintext stays on this machine. A certificate has its key.
// * Tenants have distinct names. The default lease is within the maximum. There is at most one
//   model.
// * Tiers have distinct names, and quotas name existing tiers. A tier on disk is the last one, lies
//   below host memory, and has a folder.
// * The adapters have a model, and distinct names that are not the model's.
// * The daemon's own engine can reach the primary tier. A warm restart needs host memory.
// * Addresses of the store and of peers are addresses. What is published, and what peers read, does
//   not go to strangers: see CheckStore and CheckPeers.
absl::Status ValidateConfig(const Config& config);

// Prints all keys as YAML, with the engine's addresses instead of auto. ParseConfig reads them back
// to the same configuration.
std::string PrintConfig(Config config);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CONFIG_CONFIG_H_

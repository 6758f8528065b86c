// What an operator can set, with the values that hold where nothing is set.
#ifndef PAGODA_SERVER_CONFIG_CONFIG_H_
#define PAGODA_SERVER_CONFIG_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/choices.h"
#include "manager/block_manager.h"
#include "pools/file/slab_file.h"
#include "pools/layout.h"
#include "pools/pool.h"
#include "pools/sizing.h"
#include "server/bridges/zmq_endpoint.h"
#include "server/log.h"

namespace pagoda::server {

// "$XDG_RUNTIME_DIR/pagoda.sock", or "/tmp/pagoda.sock" where that is no folder.
std::string DefaultUnixSocket();

// As server.map_socket: the path of the Unix socket with ".map" behind it, so that every daemon has
// its own; none where there is no Unix socket.
inline constexpr char kMapSocketAuto[] = "auto";
// As events.zmq.topic: "kv@POD@MODEL".
inline constexpr char kZmqTopicAuto[] = "auto";
// Whether a client on TLS shows a certificate: not at all, if it has one, or always.
enum class ClientCertificates : uint8_t { kNone, kOptional, kRequired };

// Where the primary tier lies: on a device where one can be had, in the host's memory, or on a
// device.
enum class PrimaryMemory : uint8_t { kAuto, kHost, kCuda };

// What a tier of a list lies in; kAuto: PrimaryMemory says it for the first tier, the others lie in
// the host's memory.
enum class TierMedium : uint8_t { kAuto, kGpu, kHost, kDisk };

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
      TierMedium medium = TierMedium::kAuto;
      TierBudget size = BlockBudget{{0}};
      uint32_t min_priority = kDefaultPriority.value();
      uint32_t watermark_permille = 0;
      // Of a tier on disk alone.
      std::string path;                     // The folder of its files.
      uint64_t write_bytes_per_second = 0;  // 0: no limit.
      SlabFile::OnForeign on_foreign = SlabFile::OnForeign::kRefuse;
      EngineKind io = EngineKind::kAuto;
      bool direct = true;  // O_DIRECT, where the file system has it.

      bool on_disk() const { return medium == TierMedium::kDisk; }
    };
    std::vector<TierConfig> tiers;  // Nearest first. Empty: the short forms below hold.
    // The short forms of two tiers: `primary`, `secondary`, and of `offload` what is of a tier.
    TierBudget primary = BlockBudget{{1024}};
    TierBudget secondary = BlockBudget{{0}};  // None.
    PrimaryMemory primary_memory = PrimaryMemory::kAuto;
    uint32_t device = 0;                         // CUDA's index.
    Pinning pin_secondary = Pinning::kRequired;  // Where the primary tier lies on a device.
    HugePages huge_pages = HugePages::kAuto;     // Of pools in host memory.
    // Divides bytes between windows.
    struct Workload {
      uint32_t sequence_tokens = 8192;
      uint32_t chunk_tokens = 512;
    } workload;
    // The layers of a cache without a model, in the model's order; a model brings its own.
    struct Layers {
      uint32_t count = 4;
      uint32_t window = 0;        // 0: full attention.
      uint32_t num_kv_heads = 2;  // Like head_dim not of opaque layers.
      uint32_t head_dim = 64;
      KvKind kind = KvKind::kKeyAndValue;
      uint64_t bytes_per_block = 0;  // Of opaque layers alone.

      bool opaque() const { return kind == KvKind::kOpaque; }
      // One of the layers, with elements of `dtype` unless it is opaque.
      LayerSpec Spec(DType dtype) const;
    };
    std::vector<Layers> layers = {{}};
    // The model of `layers`: part of the cache's identity, so that KV of another model with the
    // same shape is not taken for its own. Without a name nobody knows whose KV it is.
    struct Model {
      std::string name;
      std::string revision;

      // What CacheInfo.model_fingerprint says: "NAME@REVISION", "NAME", or "".
      std::string Identity() const { return revision.empty() ? name : name + "@" + revision; }
    } model;
    // A model whose layers and fingerprint the cache has, for engines in processes of their own; it
    // is not loaded. Empty: that of engine.model_dir, else `layers`.
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
    // The tiers of either form, each with its name. A secondary tier of nothing is left out.
    std::vector<TierConfig> AllTiers() const;
    // Whether the last of them is on a disk. No other one may be.
    bool has_disk() const { return !tiers.empty() && tiers.back().on_disk(); }
    // Whether the cache outlives the daemon, so that it must be known whose KV it holds.
    bool outlives_daemon() const { return warm_restart || has_disk(); }
  } cache;

  // Whether the daemon opens a cache of `cache` at its start. A configuration that gives memory for
  // clients' caches and describes none waits for them instead.
  bool own_cache = true;

  // What the caches that clients open may take together, beside the daemon's own. All 0: clients
  // open none.
  struct Memory {
    uint64_t gpu = 0;
    uint64_t host = 0;
    struct Disk {
      uint64_t size = 0;
      std::string path;                     // The folder of a folder for each cache.
      uint64_t write_bytes_per_second = 0;  // Of each cache; 0: no limit.
    } disk;
    uint32_t max_caches = 64;
    absl::Duration linger = absl::Hours(1);         // For which a cache without sessions stays.
    bool warm_restart = false;                      // As cache.warm_restart.
    Reservation reservation = Reservation::kWhole;  // Of the host's memory, when a cache opens.

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
    // gRPC over TCP speaks TLS where there is a certificate. The Unix socket never does.
    struct Tls {
      std::string certificate;  // A PEM file: the daemon's certificate, then those that signed it.
      std::string key;
      std::string client_ca;  // Who signs the clients' certificates.
      ClientCertificates client_certificates = ClientCertificates::kNone;

      bool enabled() const { return !certificate.empty(); }
    } tls;
    bool insecure = false;       // For gRPC, ZMQ and secret files.
    bool http_insecure = false;  // For HTTP.
    uint32_t max_sessions = 4096;
    // Of all tenants; see SequenceAccounts.
    uint32_t max_sequences = 65'536;
    uint64_t max_sequence_bytes = uint64_t{256} << 20;
    uint32_t max_calls = 8192;
    uint32_t max_calls_per_connection = 2048;
    uint64_t max_grpc_bytes = uint64_t{2} << 30;
    bool reflection = true;
    uint32_t max_http_generations = 16;

    // What map_socket comes to, absolute; empty: none.
    std::string MapSocketPath() const;
  } server;

  // Who may use the cache. Where nobody is named, everybody may do everything.
  struct Credentials {
    std::string tokens_file;            // Empty: none.
    std::vector<std::string> subjects;  // Names in client certificates.

    bool empty() const { return tokens_file.empty() && subjects.empty(); }
  };
  struct Quota {
    uint32_t share = 1;
    // The most blocks of each window in a tier; 0: no limit.
    struct OfTier {
      std::string tier;  // Its name.
      uint32_t blocks = 0;
    };
    std::vector<OfTier> tiers;
    // The short forms for the first and the second tier.
    uint32_t primary_blocks = 0;
    uint32_t secondary_blocks = 0;
    // Its sequences, and the bytes that these keep beside their blocks; 0: no limit of its own.
    uint32_t max_sequences = 0;
    uint64_t max_sequence_bytes = 0;
  };
  // The most that a tenant's caches may take of each kind of memory; 0: no limit of its own.
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
    uint32_t max_priority = 0;  // Of its requests to the engine.
  };
  std::vector<Tenant> tenants;
  Credentials operators;
  uint32_t default_tenant_share = 1;

  // Whether callers have to show credentials.
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

    // The events as vLLM's ZMQ publisher would send them; see bridges/zmq_bridge.h.
    struct Zmq {
      std::string endpoint;         // Empty: off.
      std::string replay_endpoint;  // Empty: no replays.
      ZmqMode mode = ZmqMode::kAuto;
      bool replay_topic = false;  // Whether a replay's answers carry the topic.
      std::string topic = kZmqTopicAuto;
      std::string pod;    // In the topic; empty: the machine's name.
      std::string model;  // In the topic; empty: the cache's name.
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
    bool tenants = false;  // Whether samples say whose they are.
    uint32_t block_sample = 64;
  } metrics;

  struct Engine {
    std::string model_dir;  // Empty: no engine.
    KvMode kv = KvMode::kPaged;
    EngineBackend backend = EngineBackend::kAuto;
    GpuAttention gpu_attention = GpuAttention::kAuto;
    uint32_t threads = 0;  // 0: as many as processors.
    ComputeType compute = ComputeType::kAuto;
    uint32_t max_step_tokens = 512;
    uint32_t max_running_sequences = 256;
    uint32_t max_waiting_requests = 1024;             // The tenants share these places,
    uint64_t max_waiting_bytes = uint64_t{64} << 20;  // and these bytes of requests that wait.
    Preemption preemption = Preemption::kOffload;
    uint32_t basic_sequences = 8;  // With KvMode::kBasic: places, and the tokens of each.
    uint32_t basic_sequence_tokens = 2048;
  } engine;

  struct Log {
    LogLevel level = LogLevel::kInfo;
  } log;
};

// The most caches that memory.max_caches allows.
inline constexpr uint32_t kMaxCaches = 1024;

// A cache's name is part of the names of shared memory and of folders. Errors: INVALID_ARGUMENT
// unless it is 1 to 64 letters, digits, '-', '_' or '.'.
absl::Status CheckCacheName(const std::string& name);

// Reads a YAML text. `file` is the name that errors carry.
// Errors: INVALID_ARGUMENT, "FILE:LINE: what is wrong; allowed: ...", for broken YAML, an unknown
// key, a wrong type or a bad value.
absl::StatusOr<Config> ParseConfig(const std::string& text, const std::string& file);
// As ParseConfig. A relative path of a file or folder is relative to the configuration's folder,
// but for server.unix_socket. Errors also: NotFound for a file that cannot be read.
absl::StatusOr<Config> LoadConfig(const std::string& file);

// What no single key shows: the daemon must be reachable, plaintext must stay on this machine, a
// certificate needs its key, tenants need names of their own, the lease must be within its maximum,
// one model at most; tiers need names of their own, and quotas name them; a tier on disk is the
// last one, below host memory, and has a folder; where the daemon's own engine computes goes with
// where the primary tier lies, and a warm restart with host memory alone. Errors: INVALID_ARGUMENT.
absl::Status ValidateConfig(const Config& config);

// All keys as YAML that ParseConfig reads back to the same configuration.
std::string PrintConfig(Config config);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CONFIG_CONFIG_H_

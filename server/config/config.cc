#include "server/config/config.h"

#include <bit>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "manager/policy/eviction_policy.h"
#include "manager/words/retention.h"
#include "manager/words/tier_spec.h"
#include "server/config/byte_count_key.h"
#include "server/config/config_keys.h"
#include "server/config/engine_keys.h"
#include "server/config/listen_address.h"
#include "server/config/store_keys.h"
#include "server/config/tier_size_key.h"
#include "yaml-cpp/eventhandler.h"

namespace pagoda::server {
namespace {

constexpr uint64_t kMaxUint32 = std::numeric_limits<uint32_t>::max();
constexpr size_t kMaxModelText = 256;
constexpr size_t kMaxTenantName = 128;  // See Namespace.tenant.

absl::Status CheckPowerOfTwo(uint64_t value) {
  if (std::has_single_bit(value)) return absl::OkStatus();
  return InvalidArgument(absl::StrCat(value, " is not a power of two"));
}

absl::Status CheckAddress(const std::string& address) {
  return address.empty() ? absl::OkStatus() : ParseAddress(address).status();
}

absl::Status CheckZmqEndpoint(const std::string& endpoint) {
  return endpoint.empty() ? absl::OkStatus() : CheckEndpoint(endpoint);
}

absl::Status CheckTenantName(const std::string& name) {
  bool good = !name.empty() && name.size() <= kMaxTenantName;
  for (const char c : name) good = good && absl::ascii_isgraph(static_cast<unsigned char>(c));
  if (good) return absl::OkStatus();
  return InvalidArgument(absl::StrCat("'", name, "' is not 1 to ", kMaxTenantName,
                                      " printable characters without blanks"));
}

// Checks one of the two parts of an identity, which an '@' joins.
absl::Status CheckModelText(const std::string& text) {
  bool good = text.size() <= kMaxModelText;
  for (const char c : text) {
    good = good && c != '@' && absl::ascii_isgraph(static_cast<unsigned char>(c));
  }
  if (good) return absl::OkStatus();
  return InvalidArgument(absl::StrCat("'", text, "' is not at most ", kMaxModelText,
                                      " printable characters without blanks and '@'"));
}

absl::Status CheckPolicy(const std::string& name) {
  return MakeEvictionPolicies(name, {}, 1).status();
}

// The keys of layers that are not opaque.
std::vector<ConfigKey> HeadsKeys(Config::Cache::Layers* layers) {
  return {NumberKey("num_kv_heads", &layers->num_kv_heads, 1, 1024),
          NumberKey("head_dim", &layers->head_dim, 1, 4096)};
}

std::vector<ConfigKey> LayersKeys(Config::Cache::Layers* layers) {
  std::vector<ConfigKey> keys = {
      NumberKey("count", &layers->count, 1, 1024),
      NumberKey("window", &layers->window, 0, kMaxUint32 - 1),
  };
  for (ConfigKey& key : HeadsKeys(layers)) {
    keys.push_back(ShownIf(std::move(key), [layers] { return !layers->opaque(); }));
  }
  keys.push_back(ChoiceKey<KvKind>("kind", &layers->kind,
                                   {{"key_value", KvKind::kKeyAndValue},
                                    {"key_only", KvKind::kKeyOnly},
                                    {"opaque", KvKind::kOpaque}}));
  keys.push_back(ShownIf(NumberKey("bytes_per_block", &layers->bytes_per_block, 1, kMaxOpaqueBytes),
                         [layers] { return layers->opaque(); }));
  return keys;
}

// The keys of a tier on disk.
std::vector<ConfigKey> DiskKeys(Config::Cache::TierConfig* tier) {
  return {
      TextKey("path", &tier->path),
      ByteCountKey("write_bytes_per_second", &tier->write_bytes_per_second, "no limit"),
      ChoiceKey<SlabFile::OnForeign>(
          "on_foreign", &tier->on_foreign,
          {{"refuse", SlabFile::OnForeign::kRefuse}, {"replace", SlabFile::OnForeign::kReplace}}),
      ChoiceKey<EngineKind>("io", &tier->io,
                            {{"auto", EngineKind::kAuto},
                             {"io_uring", EngineKind::kUring},
                             {"threads", EngineKind::kThreads}}),
      FlagKey("direct", &tier->direct),
  };
}

std::vector<std::pair<std::string, std::optional<Medium>>> MediumChoices() {
  std::vector<std::pair<std::string, std::optional<Medium>>> choices = {{"auto", std::nullopt}};
  for (const Medium medium : kAllMedia) choices.emplace_back(MediumName(medium), medium);
  return choices;
}

std::vector<ConfigKey> TierKeys(Config::Cache::TierConfig* tier) {
  std::vector<ConfigKey> keys = {
      TextKey("name", &tier->name,
              [](const std::string& name) {
                return name.empty() ? absl::OkStatus() : CheckTierName(name);
              }),
      ChoiceKey<std::optional<Medium>>("medium", &tier->medium, MediumChoices()),
      TierSizeKey("size", &tier->size, 0),
      NumberKey("min_priority", &tier->min_priority, 0, pagoda::kMaxPriority),
      NumberKey("watermark_permille", &tier->watermark_permille, 0, 1000),
  };
  for (ConfigKey& key : DiskKeys(tier)) {
    keys.push_back(ShownIf(std::move(key), [tier] { return tier->on_disk(); }));
  }
  return keys;
}

// `engine`: of the same configuration.
std::vector<ConfigKey> CacheKeys(Config::Cache* cache, const Config::Engine* engine) {
  const auto has_own_layers = [cache, engine] {
    return cache->model_dir.empty() && engine->model_dir.empty();
  };
  const auto is_list = [cache] { return !cache->tiers.empty(); };
  const auto is_short = [cache] { return cache->tiers.empty(); };
  Config::Cache::Workload& workload = cache->workload;
  Config::Cache::Offload& offload = cache->offload;
  return {
      TextKey("name", &cache->name, CheckCacheName),
      NumberKey("tokens_per_block", &cache->tokens_per_block, 1, 1024, CheckPowerOfTwo),
      ChoiceKey<DType>("kv_dtype", &cache->kv_dtype,
                       {{"float32", DType::kFloat32},
                        {"float16", DType::kFloat16},
                        {"bfloat16", DType::kBFloat16},
                        {"fp8_e4m3", DType::kFloat8E4M3},
                        {"fp8_e5m2", DType::kFloat8E5M2},
                        {"uint8", DType::kUint8}}),
      ShownIf(ListKey("tiers", &cache->tiers, TierKeys), is_list),
      ShownIf(TierSizeKey("primary", &cache->primary, 1), is_short),
      ShownIf(TierSizeKey("secondary", &cache->secondary, 0), is_short),
      ChoiceKey<PrimaryMemory>("primary_memory", &cache->primary_memory,
                               {{"auto", PrimaryMemory::kAuto},
                                {"host", PrimaryMemory::kHost},
                                {"cuda", PrimaryMemory::kCuda}}),
      NumberKey("device", &cache->device, 0, 1023),
      ChoiceKey<Pinning>("pin_lower", &cache->pin_lower,
                         {{"required", Pinning::kRequired},
                          {"preferred", Pinning::kPreferred},
                          {"off", Pinning::kOff}}),
      ChoiceKey<HugePages>("huge_pages", &cache->huge_pages,
                           {{"auto", HugePages::kAuto},
                            {"2MiB", HugePages::k2MiB},
                            {"1GiB", HugePages::k1GiB},
                            {"off", HugePages::kOff}}),
      SectionKey("workload",
                 {NumberKey("sequence_tokens", &workload.sequence_tokens, 1, kMaxUint32),
                  NumberKey("chunk_tokens", &workload.chunk_tokens, 1, kMaxUint32)}),
      // The layers of a model folder are in effect instead.
      ShownIf(ListKey("layers", &cache->layers, LayersKeys), has_own_layers),
      SectionKey("model", {TextKey("name", &cache->model.name, CheckModelText),
                           TextKey("revision", &cache->model.revision, CheckModelText)}),
      TextKey("model_dir", &cache->model_dir),
      TextKey("eviction_policy", &cache->eviction_policy, CheckPolicy),
      NumberKey("max_holes", &cache->max_holes, 0, kMaxBlocks),
      NumberKey("pin_budget_permille", &cache->pin_budget_permille, 0, 1000),
      FlagKey("warm_restart", &cache->warm_restart),
      SectionKey(
          "offload",
          {ShownIf(NumberKey("min_priority", &offload.min_priority, 0, pagoda::kMaxPriority),
                   is_short),
           ShownIf(NumberKey("watermark_permille", &offload.watermark_permille, 0, 1000), is_short),
           NumberKey("copy_threads", &offload.copy_threads, 1, 64)}),
  };
}

std::vector<ConfigKey> MemoryKeys(Config::Memory* memory) {
  Config::Memory::Disk& disk = memory->disk;
  return {
      ByteCountKey("gpu", &memory->gpu, "none"),
      ByteCountKey("host", &memory->host, "none"),
      SectionKey("disk", {ByteCountKey("size", &disk.size, "none"), TextKey("path", &disk.path),
                          ByteCountKey("write_bytes_per_second", &disk.write_bytes_per_second,
                                       "no limit")}),
      NumberKey("max_caches", &memory->max_caches, 1, kMaxCaches),
      DurationKey("linger", &memory->linger, absl::Seconds(1), absl::Hours(24 * 365)),
      FlagKey("warm_restart", &memory->warm_restart),
      ChoiceKey<Reservation>("reservation", &memory->reservation,
                             {{"whole", Reservation::kWhole}, {"sparse", Reservation::kSparse}}),
  };
}

std::vector<ConfigKey> TlsKeys(Config::Server::Tls* tls) {
  return {
      TextKey("certificate", &tls->certificate),
      TextKey("key", &tls->key),
      TextKey("client_ca", &tls->client_ca),
      ChoiceKey<ClientCertificates>("client_certificates", &tls->client_certificates,
                                    {{"none", ClientCertificates::kNone},
                                     {"optional", ClientCertificates::kOptional},
                                     {"required", ClientCertificates::kRequired}}),
  };
}

std::vector<ConfigKey> CredentialsKeys(Config::Credentials* credentials) {
  return {TextKey("tokens_file", &credentials->tokens_file),
          TextListKey("subjects", &credentials->subjects)};
}

std::vector<ConfigKey> TierQuotaKeys(Config::Quota::OfTier* quota) {
  return {TextKey("tier", &quota->tier, CheckTierName),
          NumberKey("blocks", &quota->blocks, 0, kMaxBlocks)};
}

std::vector<ConfigKey> QuotaKeys(Config::Quota* quota) {
  return {NumberKey("share", &quota->share, 1, 1'000'000),
          ListKey("quotas", &quota->tiers, TierQuotaKeys, 0),
          NumberKey("primary_blocks", &quota->primary_blocks, 0, kMaxBlocks),
          NumberKey("max_sequences", &quota->max_sequences, 0, 1 << 24),
          NumberKey("max_sequence_bytes", &quota->max_sequence_bytes, 0, uint64_t{1} << 40)};
}

// The bound of a priority in requests to the engine.
constexpr uint32_t kMaxPriority = std::numeric_limits<int32_t>::max();

std::vector<ConfigKey> TenantKeys(Config::Tenant* tenant) {
  std::vector<ConfigKey> keys = {TextKey("name", &tenant->name, CheckTenantName)};
  for (ConfigKey& key : CredentialsKeys(&tenant->credentials)) keys.push_back(std::move(key));
  keys.push_back(FlagKey("shares", &tenant->shares));
  for (ConfigKey& key : QuotaKeys(&tenant->quota)) keys.push_back(std::move(key));
  Config::CacheMemory& memory = tenant->cache_memory;
  keys.push_back(SectionKey("cache_memory", {ByteCountKey("gpu", &memory.gpu, "no limit"),
                                             ByteCountKey("host", &memory.host, "no limit"),
                                             ByteCountKey("disk", &memory.disk, "no limit")}));
  keys.push_back(NumberKey("max_priority", &tenant->max_priority, 0, kMaxPriority));
  return keys;
}

std::vector<ConfigKey> ServerKeys(Config::Server* server) {
  return {
      TextKey("unix_socket", &server->unix_socket),
      TextKey("map_socket", &server->map_socket),
      TextKey("grpc_address", &server->grpc_address, CheckAddress),
      TextKey("http_address", &server->http_address, CheckAddress),
      TextKey("probe_address", &server->probe_address, CheckAddress),
      DurationKey("drain_timeout", &server->drain_timeout, absl::ZeroDuration(), absl::Hours(1)),
      NumberKey("max_message_bytes", &server->max_message_bytes, 1 << 16, 1 << 30),
      SectionKey("tls", TlsKeys(&server->tls)),
      FlagKey("insecure", &server->insecure),
      FlagKey("http_insecure", &server->http_insecure),
      NumberKey("max_sessions", &server->max_sessions, 1, 1 << 20),
      NumberKey("max_sequences", &server->max_sequences, 1, 1 << 24),
      NumberKey("max_sequence_bytes", &server->max_sequence_bytes, 1 << 20, uint64_t{1} << 40),
      NumberKey("max_calls", &server->max_calls, 1, 1 << 20),
      NumberKey("max_calls_per_connection", &server->max_calls_per_connection, 1, 1 << 20),
      NumberKey("max_grpc_bytes", &server->max_grpc_bytes, 16 << 20, uint64_t{1} << 40),
      FlagKey("reflection", &server->reflection),
      FlagKey("rings", &server->rings),
      NumberKey("max_http_generations", &server->max_http_generations, 1, 1024),
  };
}

std::vector<ConfigKey> ZmqKeys(Config::Events::Zmq* zmq) {
  return {
      TextKey("endpoint", &zmq->endpoint, CheckZmqEndpoint),
      TextKey("replay_endpoint", &zmq->replay_endpoint, CheckZmqEndpoint),
      ChoiceKey<ZmqMode>(
          "mode", &zmq->mode,
          {{"auto", ZmqMode::kAuto}, {"listen", ZmqMode::kListen}, {"connect", ZmqMode::kConnect}}),
      FlagKey("replay_topic", &zmq->replay_topic),
      TextKey("topic", &zmq->topic),
      TextKey("pod", &zmq->pod),
      TextKey("model", &zmq->model),
      NumberKey("data_parallel_rank", &zmq->data_parallel_rank, 0, 65535),
      NumberKey("hwm", &zmq->hwm, 1, 1'000'000),
      NumberKey("subscriber_bytes", &zmq->subscriber_bytes, 1 << 16, uint64_t{1} << 40),
      NumberKey("buffer_steps", &zmq->buffer_steps, 1, 10'000'000),
      NumberKey("buffer_bytes", &zmq->buffer_bytes, 1 << 16, uint64_t{1} << 40),
  };
}

std::vector<ConfigKey> SmgKeys(Config::Events::Smg* smg) {
  return {FlagKey("enabled", &smg->enabled),
          NumberKey("data_parallel_rank", &smg->data_parallel_rank, 0, 65535),
          NumberKey("buffer_steps", &smg->buffer_steps, 1, 10'000'000),
          NumberKey("buffer_bytes", &smg->buffer_bytes, 1 << 16, uint64_t{1} << 40)};
}

std::vector<ConfigKey> EventsKeys(Config::Events* events) {
  return {
      NumberKey("max_events", &events->max_events, 1, uint64_t{1} << 32),
      NumberKey("max_bytes", &events->max_bytes, 1 << 16, uint64_t{1} << 40),
      ChoiceKey<LifecycleEvents>("lifecycle", &events->lifecycle,
                                 {{"off", LifecycleEvents::kOff},
                                  {"raw", LifecycleEvents::kRaw},
                                  {"all", LifecycleEvents::kAll}}),
      DurationKey("progress_interval", &events->progress_interval, absl::Milliseconds(10),
                  absl::Hours(1)),
      DurationKey("flush_interval", &events->flush_interval, absl::ZeroDuration(),
                  absl::Seconds(1)),
      SectionKey("zmq", ZmqKeys(&events->zmq)),
      SectionKey("smg", SmgKeys(&events->smg)),
  };
}

// All keys, bound to the fields of `config`.
std::vector<ConfigKey> Keys(Config* config) {
  Config::Sessions& sessions = config->sessions;
  const absl::Duration shortest = absl::Milliseconds(1);
  return {
      ShownIf(SectionKey("cache", CacheKeys(&config->cache, &config->engine)),
              [config] { return config->own_cache; }),
      SectionKey("memory", MemoryKeys(&config->memory)),
      SectionKey("server", ServerKeys(&config->server)),
      ListKey("tenants", &config->tenants, TenantKeys, /*min_elements=*/0),
      SectionKey("operators", CredentialsKeys(&config->operators)),
      SectionKey("default_tenant",
                 {NumberKey("share", &config->default_tenant_share, 1, 1'000'000)}),
      SectionKey(
          "sessions",
          {DurationKey("default_lease", &sessions.default_lease, shortest, absl::Hours(24)),
           DurationKey("max_lease", &sessions.max_lease, shortest, absl::Hours(24)),
           DurationKey("max_pin_lease", &sessions.max_pin_lease, shortest, absl::Hours(24 * 365))}),
      SectionKey("events", EventsKeys(&config->events)),
      SectionKey("metrics", {FlagKey("tenants", &config->metrics.tenants),
                             NumberKey("block_sample", &config->metrics.block_sample, 0, 1 << 30)}),
      SectionKey("store", StoreKeys(&config->store)),
      SectionKey("peers", PeersKeys(&config->peers)),
      SectionKey("fetch", FetchKeys(&config->fetch)),
      SectionKey("engine", EngineKeys(&config->engine)),
      SectionKey("log", {ChoiceKey<LogLevel>("level", &config->log.level,
                                             {{"info", LogLevel::kInfo},
                                              {"warning", LogLevel::kWarning},
                                              {"error", LogLevel::kError}})}),
  };
}

// Notes the line where a document begins.
class DocumentStart final : public YAML::EventHandler {
 public:
  int line() const { return line_; }

  void OnDocumentStart(const YAML::Mark& mark) override { line_ = mark.line + 1; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  int line_ = 0;
};

// Refuses a second document. YAML::LoadAll is not usable: it never returns if the first document is
// followed by a single comma, for example.
absl::Status CheckOneDocument(const std::string& text) {
  std::istringstream in(text);
  YAML::Parser parser(in);
  DocumentStart document;
  if (!parser.HandleNextDocument(document) || !parser.HandleNextDocument(document)) {
    return absl::OkStatus();
  }
  return InvalidArgument(absl::StrCat(document.line(), ": a second document; only one is allowed"));
}

// Refuses a configuration that uses both forms of the tiers.
absl::Status CheckOneFormOfTiers(const YAML::Node& cache) {
  if (!cache.IsMap() || !cache["tiers"] || cache["tiers"].IsNull()) return absl::OkStatus();
  const auto refuse = [](const YAML::Node& node, const std::string& key) {
    return ConfigError(node, absl::StrCat("cache.", key,
                                          " is a short form for caches without "
                                          "cache.tiers, and cache.tiers is set; set it there"));
  };
  for (const char* key : {"primary", "secondary"}) {
    if (const YAML::Node node = cache[key]) return refuse(node, key);
  }
  const YAML::Node offload = cache["offload"];
  if (!offload.IsDefined() || !offload.IsMap()) return absl::OkStatus();
  for (const char* key : {"min_priority", "watermark_permille"}) {
    if (const YAML::Node node = offload[key]) return refuse(node, absl::StrCat("offload.", key));
  }
  return absl::OkStatus();
}

// Refuses a disk's keys in other tiers: they would do nothing. REQUIRES: the mapping was read.
absl::Status CheckDiskKeysAreOfDisks(const YAML::Node& cache) {
  if (!cache.IsMap()) return absl::OkStatus();
  const YAML::Node tiers = cache["tiers"];
  if (!tiers.IsDefined() || tiers.IsNull()) return absl::OkStatus();
  Config::Cache::TierConfig any;
  const std::vector<ConfigKey> of_disks = DiskKeys(&any);
  const bool one = tiers.IsMap();
  for (size_t i = 0; i < (one ? 1 : tiers.size()); ++i) {
    const YAML::Node tier = one ? tiers : tiers[i];
    const YAML::Node medium = tier["medium"];
    if (medium.IsDefined() && MediumFromName(medium.Scalar()) == Medium::kDisk) continue;
    for (const ConfigKey& key : of_disks) {
      if (const YAML::Node value = tier[key.name]; value.IsDefined()) {
        return ConfigError(value, absl::StrCat(key.name, " is only for tiers with medium: disk"));
      }
    }
  }
  return absl::OkStatus();
}

// Refuses the shape of heads for opaque layers, and bytes_per_block for other layers: neither would
// have an effect. REQUIRES: the mapping was read.
absl::Status CheckShapesOfLayers(const YAML::Node& cache) {
  if (!cache.IsMap()) return absl::OkStatus();
  const YAML::Node layers = cache["layers"];
  if (!layers.IsDefined() || layers.IsNull()) return absl::OkStatus();
  Config::Cache::Layers any;
  const std::vector<ConfigKey> heads = HeadsKeys(&any);
  const bool one = layers.IsMap();
  for (size_t i = 0; i < (one ? 1 : layers.size()); ++i) {
    const YAML::Node group = one ? layers : layers[i];
    const YAML::Node kind = group["kind"];
    const YAML::Node bytes = group["bytes_per_block"];
    if (!kind.IsDefined() || kind.Scalar() != "opaque") {
      if (!bytes.IsDefined()) continue;
      return ConfigError(bytes, "bytes_per_block is only for layers with kind: opaque");
    }
    if (!bytes.IsDefined()) {
      return ConfigError(kind, "kind is opaque, and bytes_per_block is not set");
    }
    for (const ConfigKey& key : heads) {
      if (const YAML::Node value = group[key.name]; value.IsDefined()) {
        return ConfigError(value, absl::StrCat(key.name, " is not for layers with kind: opaque"));
      }
    }
  }
  return absl::OkStatus();
}

// Sets primary_memory from the first tier's medium.
absl::Status AdoptFirstMedium(Config::Cache* cache) {
  if (cache->tiers.empty()) return absl::OkStatus();
  const std::optional<Medium> medium = cache->tiers.front().medium;
  if (medium != Medium::kGpu && medium != Medium::kHost) return absl::OkStatus();
  const PrimaryMemory wanted = medium == Medium::kGpu ? PrimaryMemory::kCuda : PrimaryMemory::kHost;
  if (cache->primary_memory != PrimaryMemory::kAuto && cache->primary_memory != wanted) {
    return InvalidArgument(
        " the first tier's medium and cache.primary_memory contradict each other; set one of them "
        "to auto");
  }
  cache->primary_memory = wanted;
  return absl::OkStatus();
}

// The paths that are relative to the configuration's folder.
std::vector<std::string*> Paths(Config& config) {
  Config::Server::Tls& tls = config.server.tls;
  std::vector<std::string*> paths = {&config.cache.model_dir, &config.engine.model_dir,
                                     &tls.certificate,        &tls.key,
                                     &tls.client_ca,          &config.operators.tokens_file};
  paths.push_back(&config.memory.disk.path);
  for (std::string* path : StorePaths(config)) paths.push_back(path);
  for (Config::Cache::TierConfig& tier : config.cache.tiers) paths.push_back(&tier.path);
  for (AdapterFolder& adapter : config.engine.adapters) paths.push_back(&adapter.path);
  for (Config::Tenant& tenant : config.tenants) {
    paths.push_back(&tenant.credentials.tokens_file);
  }
  return paths;
}

}  // namespace

std::string ModelName(const std::string& model_dir) {
  const std::filesystem::path path(model_dir);
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

absl::Status CheckCacheName(const std::string& name) {
  constexpr size_t kMaxBytes = 64;
  bool good = !name.empty() && name.size() <= kMaxBytes && name != "." && name != "..";
  for (const char c : name) {
    good = good &&
           (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.');
  }
  if (good) return absl::OkStatus();
  return InvalidArgument(absl::StrCat("'", absl::CHexEscape(name.substr(0, kMaxBytes)),
                                      "' is not 1 to ", kMaxBytes,
                                      " letters, digits, '-', '_' or '.'"));
}

std::string Config::Server::MapSocketPath() const {
  const bool automatic = map_socket == kMapSocketAuto;
  if (automatic ? unix_socket.empty() : map_socket.empty()) return "";
  const std::string path = automatic ? absl::StrCat(unix_socket, ".map") : map_socket;
  return std::filesystem::absolute(path).string();
}

std::string DefaultUnixSocket() {
  const char* folder = std::getenv("XDG_RUNTIME_DIR");
  std::error_code ignored;
  const bool usable = folder != nullptr && std::filesystem::is_directory(folder, ignored);
  return absl::StrCat(usable ? folder : "/tmp", "/pagoda.sock");
}

absl::StatusOr<Config> ParseConfig(const std::string& text, const std::string& file) {
  Config config;
  absl::Status status;
  try {
    status = CheckOneDocument(text);
    if (status.ok()) {
      const YAML::Node root = YAML::Load(text);
      status = root.IsNull() || root.IsMap() ? ReadMapping(root, Keys(&config))
                                             : ConfigError(root, "not a mapping of sections");
      if (status.ok() && root.IsMap() && root["cache"]) {
        status = CheckOneFormOfTiers(root["cache"]);
        if (status.ok()) status = CheckDiskKeysAreOfDisks(root["cache"]);
        if (status.ok()) status = CheckShapesOfLayers(root["cache"]);
      }
      // A configuration with memory but without a cache waits for clients' caches.
      const bool has_cache = root.IsMap() && (root["cache"] || !config.engine.model_dir.empty());
      config.own_cache = has_cache || !config.memory.any();
    }
    if (status.ok()) status = AdoptFirstMedium(&config.cache);
  } catch (const YAML::Exception& error) {
    status = InvalidArgument(absl::StrCat(error.mark.line + 1, ": ", error.msg));
  }
  if (!status.ok()) return InvalidArgument(absl::StrCat(file, ":", std::string(status.message())));
  status = ValidateConfig(config);
  if (!status.ok()) return InvalidArgument(absl::StrCat(file, ": ", std::string(status.message())));
  return config;
}

absl::StatusOr<Config> LoadConfig(const std::string& file) {
  std::ifstream in(file);
  if (!in.is_open() || std::filesystem::is_directory(file)) {
    return absl::NotFoundError(absl::StrCat("cannot read the configuration ", file));
  }
  std::ostringstream text;
  text << in.rdbuf();
  absl::StatusOr<Config> config = ParseConfig(text.str(), file);
  if (!config.ok()) return config;
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  for (std::string* path : Paths(*config)) {
    // An absolute path stays as it is.
    if (!path->empty()) *path = (folder / *path).lexically_normal().string();
  }
  return config;
}

std::string PrintConfig(Config config) {
  ResolveEngineAddresses(config);
  YAML::Emitter out;
  PrintMapping(Keys(&config), out);
  return absl::StrCat(out.c_str(), "\n");
}

}  // namespace pagoda::server

#include "server/config.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "manager/eviction_policy.h"
#include "manager/retention.h"
#include "pools/error.h"
#include "server/config_keys.h"
#include "server/listen_address.h"
#include "server/tier_size_key.h"

namespace pagoda::server {
namespace {

constexpr uint64_t kMaxUint32 = std::numeric_limits<uint32_t>::max();
constexpr size_t kMaxCacheName = 64;

absl::Status Refuse(const std::string& what) { return MakeError(Reason::kInvalidArgument, what); }

void AppendView(std::string* out, std::string_view text) { out->append(text); }

// The name is part of a shared memory object's name, so it must not hold a slash.
absl::Status CheckCacheName(const std::string& name) {
  bool good = !name.empty() && name.size() <= kMaxCacheName;
  for (const char c : name) {
    good = good &&
           (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.');
  }
  if (good) return absl::OkStatus();
  return Refuse(absl::StrCat("'", name, "' is not 1 to ", kMaxCacheName,
                             " letters, digits, '-', '_' or '.'"));
}

absl::Status CheckPowerOfTwo(uint64_t value) {
  if (std::has_single_bit(value)) return absl::OkStatus();
  return Refuse(absl::StrCat(value, " is not a power of two"));
}

absl::Status CheckAddress(const std::string& address) {
  return address.empty() ? absl::OkStatus() : ParseAddress(address).status();
}

absl::Status CheckLoopbackAddress(const std::string& address) {
  return address.empty() ? absl::OkStatus() : ParseLoopbackAddress(address).status();
}

absl::Status CheckPolicy(const std::string& name) {
  const auto& names = EvictionPolicyNames();
  if (std::find(names.begin(), names.end(), name) != names.end()) return absl::OkStatus();
  return Refuse(absl::StrCat("'", name, "' is none of ", absl::StrJoin(names, ", ", AppendView)));
}

std::vector<ConfigKey> LayersKeys(Config::Cache::Layers* layers) {
  return {
      NumberKey("count", &layers->count, 1, 1024),
      NumberKey("window", &layers->window, 0, kMaxUint32 - 1),
      NumberKey("num_kv_heads", &layers->num_kv_heads, 1, 1024),
      NumberKey("head_dim", &layers->head_dim, 1, 4096),
      ChoiceKey<KvKind>("kind", &layers->kind,
                        {{"key_value", KvKind::kKeyAndValue}, {"key_only", KvKind::kKeyOnly}}),
  };
}

std::vector<ConfigKey> CacheKeys(Config::Cache* cache) {
  Config::Cache::Workload& workload = cache->workload;
  Config::Cache::Offload& offload = cache->offload;
  return {
      TextKey("name", &cache->name, CheckCacheName),
      NumberKey("tokens_per_block", &cache->tokens_per_block, 1, 1024, CheckPowerOfTwo),
      ChoiceKey<DType>("kv_dtype", &cache->kv_dtype,
                       {{"float32", DType::kFloat32},
                        {"float16", DType::kFloat16},
                        {"bfloat16", DType::kBFloat16}}),
      TierSizeKey("primary", &cache->primary, 1),
      TierSizeKey("secondary", &cache->secondary, 0),
      SectionKey("workload",
                 {NumberKey("sequence_tokens", &workload.sequence_tokens, 1, kMaxUint32),
                  NumberKey("chunk_tokens", &workload.chunk_tokens, 1, kMaxUint32)}),
      ListKey("layers", &cache->layers, LayersKeys),
      TextKey("eviction_policy", &cache->eviction_policy, CheckPolicy),
      NumberKey("max_holes", &cache->max_holes, 0, kMaxBlocks),
      NumberKey("pin_budget_permille", &cache->pin_budget_permille, 0, 1000),
      SectionKey("offload", {NumberKey("min_priority", &offload.min_priority, 0, kMaxPriority),
                             NumberKey("watermark_permille", &offload.watermark_permille, 0, 1000),
                             NumberKey("copy_threads", &offload.copy_threads, 1, 64)}),
  };
}

std::vector<ConfigKey> ServerKeys(Config::Server* server) {
  return {
      TextKey("unix_socket", &server->unix_socket),
      TextKey("map_socket", &server->map_socket),
      TextKey("grpc_address", &server->grpc_address, CheckLoopbackAddress),
      TextKey("http_address", &server->http_address, CheckAddress),
      DurationKey("drain_timeout", &server->drain_timeout, absl::ZeroDuration(), absl::Hours(1)),
      NumberKey("max_message_bytes", &server->max_message_bytes, 1 << 16, 1 << 30),
      NumberKey("max_sessions", &server->max_sessions, 1, 1 << 20),
      FlagKey("reflection", &server->reflection),
  };
}

// Every key there is, bound to the fields of `config`.
std::vector<ConfigKey> Keys(Config* config) {
  Config::Sessions& sessions = config->sessions;
  Config::Events& events = config->events;
  const absl::Duration shortest = absl::Milliseconds(1);
  return {
      SectionKey("cache", CacheKeys(&config->cache)),
      SectionKey("server", ServerKeys(&config->server)),
      SectionKey("sessions",
                 {DurationKey("default_lease", &sessions.default_lease, shortest, absl::Hours(24)),
                  DurationKey("max_lease", &sessions.max_lease, shortest, absl::Hours(24))}),
      SectionKey("events", {NumberKey("max_events", &events.max_events, 1, uint64_t{1} << 32),
                            NumberKey("max_bytes", &events.max_bytes, 1 << 16, uint64_t{1} << 40),
                            ChoiceKey<LifecycleEvents>(
                                "lifecycle", &events.lifecycle,
                                {{"off", LifecycleEvents::kOff}, {"raw", LifecycleEvents::kRaw}}),
                            DurationKey("progress_interval", &events.progress_interval,
                                        absl::Milliseconds(10), absl::Hours(1)),
                            DurationKey("flush_interval", &events.flush_interval,
                                        absl::ZeroDuration(), absl::Seconds(1))}),
      SectionKey("engine", {TextKey("model_dir", &config->engine.model_dir),
                            NumberKey("prefill_chunk_tokens", &config->engine.prefill_chunk_tokens,
                                      1, 1 << 20)}),
      SectionKey("log", {ChoiceKey<LogLevel>("level", &config->log.level,
                                             {{"info", LogLevel::kInfo},
                                              {"warning", LogLevel::kWarning},
                                              {"error", LogLevel::kError}})}),
  };
}

}  // namespace

Config::Cache::Cache() : eviction_policy(EvictionPolicyNames().front()) {}

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
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    const YAML::Node root = documents.empty() ? YAML::Node() : documents.front();
    status = documents.size() > 1 ? ConfigError(documents[1], "a second document; one is read")
             : root.IsNull() || root.IsMap() ? ReadMapping(root, Keys(&config))
                                             : ConfigError(root, "not a mapping of sections");
  } catch (const YAML::Exception& error) {
    status = Refuse(absl::StrCat(error.mark.line + 1, ": ", error.msg));
  }
  if (!status.ok()) return Refuse(absl::StrCat(file, ":", std::string(status.message())));
  status = ValidateConfig(config);
  if (!status.ok()) return Refuse(absl::StrCat(file, ": ", std::string(status.message())));
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
  if (config.ok() && !config->engine.model_dir.empty()) {
    // An absolute path stays as it is.
    const std::filesystem::path folder = std::filesystem::path(file).parent_path();
    config->engine.model_dir = (folder / config->engine.model_dir).lexically_normal().string();
  }
  return config;
}

absl::Status ValidateConfig(const Config& config) {
  if (config.server.unix_socket.empty() && config.server.grpc_address.empty()) {
    return Refuse("server.unix_socket and server.grpc_address are both empty; gRPC needs one");
  }
  if (config.sessions.default_lease > config.sessions.max_lease) {
    return Refuse(absl::StrCat(
        "sessions.default_lease ", absl::FormatDuration(config.sessions.default_lease),
        " is above sessions.max_lease ", absl::FormatDuration(config.sessions.max_lease)));
  }
  return absl::OkStatus();
}

std::string PrintConfig(Config config) {
  YAML::Emitter out;
  PrintMapping(Keys(&config), out);
  return absl::StrCat(out.c_str(), "\n");
}

}  // namespace pagoda::server

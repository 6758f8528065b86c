// A configuration file of arbitrary bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"
#include "base/error.h"
#include "server/config/config.h"
#include "tests/fuzz/planted.h"

namespace pagoda::server {
namespace {

bool SameBudget(const TierBudget& a, const TierBudget& b) {
  if (const auto* blocks = std::get_if<BlockBudget>(&a)) {
    return std::holds_alternative<BlockBudget>(b) &&
           blocks->blocks == std::get<BlockBudget>(b).blocks;
  }
  if (const auto* bytes = std::get_if<ByteBudget>(&a)) {
    return std::holds_alternative<ByteBudget>(b) && bytes->bytes == std::get<ByteBudget>(b).bytes;
  }
  return std::holds_alternative<FractionBudget>(b) &&
         std::get<FractionBudget>(a).fraction == std::get<FractionBudget>(b).fraction;
}

// Compares the values that could be printed wrongly: sizes with units, durations, texts.
bool SameValues(const Config& a, const Config& b) {
  const std::vector<Config::Cache::TierConfig> tiers = a.cache.AllTiers();
  const std::vector<Config::Cache::TierConfig> others = b.cache.AllTiers();
  return std::equal(tiers.begin(), tiers.end(), others.begin(), others.end(),
                    [](const auto& one, const auto& other) {
                      return one.name == other.name && SameBudget(one.size, other.size) &&
                             one.path == other.path &&
                             one.write_bytes_per_second == other.write_bytes_per_second;
                    }) &&
         a.server.unix_socket == b.server.unix_socket &&
         a.server.grpc_address == b.server.grpc_address &&
         a.server.http_address == b.server.http_address &&
         a.server.drain_timeout == b.server.drain_timeout &&
         a.sessions.default_lease == b.sessions.default_lease &&
         a.sessions.max_lease == b.sessions.max_lease &&
         a.sessions.max_pin_lease == b.sessions.max_pin_lease &&
         a.events.progress_interval == b.events.progress_interval &&
         a.events.flush_interval == b.events.flush_interval &&
         a.engine.model_dir == b.engine.model_dir && a.cache.layers.size() == b.cache.layers.size();
}

std::string Print(const Config& config) {
  const std::string printed = PrintConfig(config);
  return fuzz::Planted("WrongUnit") ? absl::StrReplaceAll(printed, {{"TiB", "GiB"}}) : printed;
}

// A configuration that was read can be printed, and the print reads back to the same configuration.
void Check(const std::string& text) {
  const absl::StatusOr<Config> config = ParseConfig(text, "fuzz.yaml");
  if (!config.ok()) {
    PAGODA_CHECK(ReasonOf(config.status()) == Reason::kInvalidArgument,
                 "a configuration is refused with INVALID_ARGUMENT");
    PAGODA_CHECK(absl::StartsWith(config.status().message(), "fuzz.yaml:"),
                 "a refusal names the file");
    return;
  }
  const std::string printed = Print(*config);
  const absl::StatusOr<Config> again = ParseConfig(printed, "printed.yaml");
  PAGODA_CHECK(again.ok(), std::string(again.status().message()).c_str());
  PAGODA_CHECK(SameValues(*config, *again), "what was printed reads back to the same values");
  PAGODA_CHECK(Print(*again) == printed, "what was read back prints the same");
}

}  // namespace
}  // namespace pagoda::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pagoda::server::Check(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}

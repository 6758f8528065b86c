#include "clients/router/served_cache.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/counted.h"
#include "base/error.h"
#include "wire/vocabulary.h"

namespace pagoda {
namespace {

constexpr uint32_t kMaxTokensPerBlock = 1024;

double BytesPerToken(const v1::CacheRow& row) {
  double bytes = 0;
  for (const v1::LayerGroup& group : row.layers()) {
    if (group.kind() == v1::LAYER_KIND_OPAQUE) {
      bytes += static_cast<double>(group.count()) * static_cast<double>(group.bytes_per_block()) /
               row.cache().tokens_per_block();
      continue;
    }
    const double heads = group.kind() == v1::LAYER_KIND_KEY_ONLY ? 1 : 2;
    const std::optional<DType> dtype = DTypeFromProto(group.dtype());
    const double element = dtype.has_value() ? DTypeBytes(*dtype) : 2;
    bytes += heads * group.count() * group.num_kv_heads() * group.head_dim() * element;
  }
  return bytes;
}

// Full attention counts as the largest. 0 if the daemon lists no window.
uint32_t LargestWindow(const v1::CacheInfo& cache) {
  WindowSize largest;
  for (const v1::WindowInfo& window : cache.windows()) {
    largest = std::max(largest, WindowFromProto(window.window_size()));
  }
  return cache.windows().empty() ? 0 : WindowToProto(largest);
}

}  // namespace

absl::StatusOr<ServedCache> ServedCacheFrom(const v1::ListCachesResponse& answer,
                                            const std::string& name) {
  std::vector<std::string> names;
  const v1::CacheRow* chosen = nullptr;
  for (const v1::CacheRow& row : answer.caches()) {
    names.push_back(row.cache().name());
    if (name.empty() || row.cache().name() == name) chosen = &row;
  }
  if (name.empty() && names.size() > 1) {
    return MakeError(Reason::kCacheNotNamed,
                     absl::StrCat("there are several caches: ", absl::StrJoin(names, ", ")));
  }
  if (chosen == nullptr) {
    return MakeError(Reason::kUnknownCache, absl::StrCat("there is no cache '", name, "'"));
  }
  const v1::CacheInfo& info = chosen->cache();
  if (!std::has_single_bit(info.tokens_per_block()) ||
      info.tokens_per_block() > kMaxTokensPerBlock) {
    return InvalidArgument(
        absl::StrCat("the cache has ", Counted(info.tokens_per_block(), "token"), " in a block"));
  }
  ServedCache cache = {.name = info.name(),
                       .model_fingerprint = info.model_fingerprint(),
                       .epoch = chosen->epoch(),
                       .tokens_per_block = info.tokens_per_block(),
                       .window_size = LargestWindow(info),
                       .tiers = {},
                       .bytes_per_token = BytesPerToken(*chosen)};
  for (const v1::TierInfo& tier : info.tiers()) {
    cache.tiers.push_back(
        {.name = tier.name(), .medium = MediumFromProto(tier.medium()).value_or(Medium::kHost)});
  }
  return cache;
}

absl::Status CheckSameContent(const ServedCache& first, const ServedCache& other) {
  if (first.tokens_per_block != other.tokens_per_block) {
    return InvalidArgument(absl::StrCat("the cache has ", Counted(other.tokens_per_block, "token"),
                                        " in a block, and the first node's cache has ",
                                        first.tokens_per_block));
  }
  if (first.model_fingerprint != other.model_fingerprint) {
    return MakeError(
        Reason::kModelMismatch,
        absl::StrCat("the cache is of the model '", other.model_fingerprint,
                     "', and the first node's cache is of '", first.model_fingerprint, "'"));
  }
  return absl::OkStatus();
}

}  // namespace pagoda

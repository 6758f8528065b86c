// Caches that clients bring: what they ask for, and what lists tell of them.
#ifndef PAGODA_WIRE_CACHES_H_
#define PAGODA_WIRE_CACHES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pagoda/v1/caches.pb.h"
#include "pools/layout.h"
#include "pools/types.h"

namespace pagoda {

// What decides which KV may be mixed: v1::CacheIdentity.
struct CacheIdentity {
  std::string model;
  std::string revision;
  std::string dtype;
  std::string layout;
  std::string kernel_packing;
  friend bool operator==(const CacheIdentity&, const CacheIdentity&) = default;

  // All of it in one line; of an identity that is a model alone, the model. Two identities that
  // differ have different texts. What CacheInfo::model_fingerprint of such a cache says.
  std::string Text() const;
};

// How much of a tier a client wants: bytes, or where these are 0 thousandths of what is free.
struct TierWish {
  Medium medium = Medium::kHost;
  uint64_t bytes = 0;
  uint32_t free_permille = 0;
  friend bool operator==(const TierWish&, const TierWish&) = default;
};

struct OpenCacheCall {
  std::string name;
  CacheIdentity identity;
  uint32_t tokens_per_block = 0;
  std::vector<LayerSpec> layers;  // In the model's order.
  std::vector<TierWish> tiers;    // Nearest first; not empty.
  std::string eviction_policy;
};

// The most layers of a cache that a client brings.
inline constexpr uint32_t kMaxBroughtLayers = 4096;

void OpenCacheToProto(const OpenCacheCall& call, v1::OpenCacheRequest* out);
// Checks what stands in the request by itself: bounds, words and texts. The name and the policy are
// not looked at. Without tiers: half of what is free on the host. Errors: INVALID_ARGUMENT, naming
// the field.
absl::StatusOr<OpenCacheCall> OpenCacheFromProto(const v1::OpenCacheRequest& proto);

void IdentityToProto(const CacheIdentity& identity, v1::CacheIdentity* out);
CacheIdentity IdentityFromProto(const v1::CacheIdentity& proto);
// Neighbours that are alike become one group.
void LayersToProto(const std::vector<LayerSpec>& layers,
                   google::protobuf::RepeatedPtrField<v1::LayerGroup>* out);

}  // namespace pagoda

#endif  // PAGODA_WIRE_CACHES_H_

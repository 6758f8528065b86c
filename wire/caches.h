// Caches that clients open: the request, and the fields of lists.
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

// Decides which KV can be mixed: v1::CacheIdentity.
struct CacheIdentity {
  std::string model;
  std::string revision;
  std::string dtype;
  std::string layout;
  std::string kernel_packing;
  friend bool operator==(const CacheIdentity&, const CacheIdentity&) = default;

  // All fields in one line, or the model if the other fields are empty. Different identities have
  // different texts. CacheInfo::model_fingerprint of the cache is this text.
  std::string Text() const;
};

// The size that a client asks for in one tier: bytes or, if these are 0, thousandths of the free
// part of the budget.
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

// The most layers of a cache that a client opens.
inline constexpr uint32_t kMaxBroughtLayers = 4096;

void OpenCacheToProto(const OpenCacheCall& call, v1::OpenCacheRequest* out);
// Checks everything that the request decides alone: bounds, enum values and texts. Does not check
// the name and the policy. Without tiers the call has one: half of the free part of the host's
// budget. Errors: INVALID_ARGUMENT, naming the field.
absl::StatusOr<OpenCacheCall> OpenCacheFromProto(const v1::OpenCacheRequest& proto);

void IdentityToProto(const CacheIdentity& identity, v1::CacheIdentity* out);
CacheIdentity IdentityFromProto(const v1::CacheIdentity& proto);
// Equal neighbours become one group.
void LayersToProto(const std::vector<LayerSpec>& layers,
                   google::protobuf::RepeatedPtrField<v1::LayerGroup>* out);

}  // namespace pagoda

#endif  // PAGODA_WIRE_CACHES_H_

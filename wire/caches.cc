#include "wire/caches.h"

#include <array>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "wire/enum_pairs.h"
#include "wire/vocabulary.h"

namespace pagoda {
namespace {

constexpr size_t kMaxIdentityText = 256;
constexpr uint32_t kMaxGroupLayers = 1024;
constexpr uint32_t kDefaultPermille = 500;

constexpr std::array kLayerKinds = {
    EnumPair{KvKind::kKeyAndValue, v1::LAYER_KIND_KEY_VALUE},
    EnumPair{KvKind::kKeyOnly, v1::LAYER_KIND_KEY_ONLY},
    EnumPair{KvKind::kOpaque, v1::LAYER_KIND_OPAQUE},
};

absl::Status CheckText(const char* field, const std::string& text) {
  bool good = text.size() <= kMaxIdentityText;
  for (const char c : text) good = good && absl::ascii_isgraph(static_cast<unsigned char>(c));
  if (good) return absl::OkStatus();
  return InvalidArgument(absl::StrCat("identity.", field, " is not at most ", kMaxIdentityText,
                                      " printable characters without blanks"));
}

absl::Status CheckIdentity(const CacheIdentity& identity) {
  if (identity.model.empty()) return InvalidArgument("identity.model is empty; it names the model");
  for (const auto& [field, text] :
       {std::pair("model", &identity.model), std::pair("revision", &identity.revision),
        std::pair("dtype", &identity.dtype), std::pair("layout", &identity.layout),
        std::pair("kernel_packing", &identity.kernel_packing)}) {
    if (absl::Status status = CheckText(field, *text); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// --- Layers ---

absl::StatusOr<LayerSpec> LayerFromProto(const v1::LayerGroup& proto, int index) {
  const auto refuse = [index](const std::string& what) {
    return InvalidArgument(absl::StrCat("layers[", index, "]: ", what));
  };
  const std::optional<KvKind> kind = FromProto(kLayerKinds, proto.kind());
  if (!kind.has_value()) return refuse(absl::StrCat("there is no kind ", proto.kind()));
  LayerSpec layer{.window = WindowFromProto(proto.window_size()), .kind = *kind};
  if (layer.kind == KvKind::kOpaque) {
    if (proto.num_kv_heads() != 0 || proto.head_dim() != 0) {
      return refuse("an opaque layer has bytes_per_block and no heads");
    }
    if (proto.dtype() != v1::DTYPE_UNSPECIFIED && proto.dtype() != v1::DTYPE_UINT8) {
      return refuse("an opaque layer has no dtype, or UINT8");
    }
    layer.bytes_per_block = proto.bytes_per_block();
    return layer;
  }
  const std::optional<DType> dtype = DTypeFromProto(proto.dtype());
  if (!dtype.has_value()) return refuse(absl::StrCat("there is no dtype ", proto.dtype()));
  if (proto.bytes_per_block() != 0) {
    return refuse("bytes_per_block is only for layers of kind OPAQUE");
  }
  layer.num_kv_heads = proto.num_kv_heads();
  layer.head_dim = proto.head_dim();
  layer.dtype = *dtype;
  return layer;
}

void LayerToProto(const LayerSpec& layer, v1::LayerGroup* out) {
  out->set_window_size(WindowToProto(layer.window));
  out->set_kind(ToProto(kLayerKinds, layer.kind));
  if (layer.kind == KvKind::kOpaque) {
    out->set_bytes_per_block(layer.bytes_per_block);
    return;
  }
  out->set_num_kv_heads(layer.num_kv_heads);
  out->set_head_dim(layer.head_dim);
  out->set_dtype(DTypeToProto(layer.dtype));
}

absl::StatusOr<std::vector<LayerSpec>> LayersFromProto(const v1::OpenCacheRequest& proto) {
  std::vector<LayerSpec> layers;
  for (int i = 0; i < proto.layers_size(); ++i) {
    const v1::LayerGroup& group = proto.layers(i);
    if (group.count() == 0 || group.count() > kMaxGroupLayers) {
      return InvalidArgument(absl::StrCat("layers[", i, "]: count is ", group.count(),
                                          "; allowed: 1 to ", kMaxGroupLayers));
    }
    if (layers.size() + group.count() > kMaxBroughtLayers) {
      return InvalidArgument(
          absl::StrCat("the cache has more than ", kMaxBroughtLayers, " layers"));
    }
    const absl::StatusOr<LayerSpec> layer = LayerFromProto(group, i);
    if (!layer.ok()) return layer.status();
    layers.insert(layers.end(), group.count(), *layer);
  }
  if (layers.empty()) return InvalidArgument("the cache has no layers");
  return layers;
}

// --- Tiers ---

absl::StatusOr<TierWish> TierFromProto(const v1::TierSize& proto, int index) {
  const auto refuse = [index](const std::string& what) {
    return InvalidArgument(absl::StrCat("tiers[", index, "]: ", what));
  };
  const std::optional<Medium> medium = MediumFromProto(proto.medium());
  if (!medium.has_value()) return refuse(absl::StrCat("there is no medium ", proto.medium()));
  TierWish wish{.medium = *medium, .bytes = proto.bytes(), .free_permille = proto.free_permille()};
  if (proto.size_case() == v1::TierSize::kFreePermille) {
    if (wish.free_permille == 0 || wish.free_permille > 1000) {
      return refuse(absl::StrCat("free_permille is ", wish.free_permille, "; allowed: 1 to 1000"));
    }
  } else if (wish.bytes == 0) {
    return refuse("it has no size: set bytes or free_permille");
  }
  return wish;
}

// The order is GPU, host, disk. A disk takes blocks only from the host's memory.
absl::Status CheckOrder(const std::vector<TierWish>& tiers) {
  for (size_t i = 1; i < tiers.size(); ++i) {
    if (tiers[i - 1].medium >= tiers[i].medium) {
      return InvalidArgument("the tiers are not in the order GPU, host, disk, each at most once");
    }
  }
  if (tiers.front().medium == Medium::kDisk) {
    return InvalidArgument("the first tier is on disk; engines compute in memory");
  }
  if (tiers.back().medium == Medium::kDisk && tiers[tiers.size() - 2].medium != Medium::kHost) {
    return InvalidArgument("a tier on disk needs one on the host above it");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TierWish>> TiersFromProto(const v1::OpenCacheRequest& proto) {
  if (proto.tiers().empty()) {
    return std::vector<TierWish>{{.medium = Medium::kHost, .free_permille = kDefaultPermille}};
  }
  constexpr int kMostTiers = 3;  // One of each medium.
  if (proto.tiers_size() > kMostTiers) {
    return InvalidArgument(
        absl::StrCat("there are ", proto.tiers_size(), " tiers; at most ", kMostTiers));
  }
  std::vector<TierWish> tiers;
  for (int i = 0; i < proto.tiers_size(); ++i) {
    const absl::StatusOr<TierWish> wish = TierFromProto(proto.tiers(i), i);
    if (!wish.ok()) return wish.status();
    tiers.push_back(*wish);
  }
  if (absl::Status status = CheckOrder(tiers); !status.ok()) return status;
  return tiers;
}

}  // namespace

std::string CacheIdentity::Text() const {
  // Every other text has blanks.
  if (*this == CacheIdentity{.model = model}) return model;
  return absl::StrCat("model=", model, " revision=", revision, " dtype=", dtype, " layout=", layout,
                      " packing=", kernel_packing);
}

void IdentityToProto(const CacheIdentity& identity, v1::CacheIdentity* out) {
  out->set_model(identity.model);
  out->set_revision(identity.revision);
  out->set_dtype(identity.dtype);
  out->set_layout(identity.layout);
  out->set_kernel_packing(identity.kernel_packing);
}

CacheIdentity IdentityFromProto(const v1::CacheIdentity& proto) {
  return {.model = proto.model(),
          .revision = proto.revision(),
          .dtype = proto.dtype(),
          .layout = proto.layout(),
          .kernel_packing = proto.kernel_packing()};
}

void LayersToProto(const std::vector<LayerSpec>& layers,
                   google::protobuf::RepeatedPtrField<v1::LayerGroup>* out) {
  for (size_t begin = 0; begin < layers.size();) {
    size_t end = begin + 1;
    while (end < layers.size() && end - begin < kMaxGroupLayers && layers[end] == layers[begin]) {
      ++end;
    }
    v1::LayerGroup* const group = out->Add();
    group->set_count(static_cast<uint32_t>(end - begin));
    LayerToProto(layers[begin], group);
    begin = end;
  }
}

void OpenCacheToProto(const OpenCacheCall& call, v1::OpenCacheRequest* out) {
  out->set_name(call.name);
  IdentityToProto(call.identity, out->mutable_identity());
  out->set_tokens_per_block(call.tokens_per_block);
  LayersToProto(call.layers, out->mutable_layers());
  for (const TierWish& wish : call.tiers) {
    v1::TierSize* const tier = out->add_tiers();
    tier->set_medium(MediumToProto(wish.medium));
    if (wish.bytes > 0) {
      tier->set_bytes(wish.bytes);
    } else {
      tier->set_free_permille(wish.free_permille);
    }
  }
  out->set_eviction_policy(call.eviction_policy);
}

absl::StatusOr<OpenCacheCall> OpenCacheFromProto(const v1::OpenCacheRequest& proto) {
  OpenCacheCall call{.name = proto.name(),
                     .identity = IdentityFromProto(proto.identity()),
                     .tokens_per_block = proto.tokens_per_block(),
                     .layers = {},
                     .tiers = {},
                     .eviction_policy = proto.eviction_policy()};
  if (absl::Status status = CheckIdentity(call.identity); !status.ok()) return status;
  absl::StatusOr<std::vector<LayerSpec>> layers = LayersFromProto(proto);
  if (!layers.ok()) return layers.status();
  call.layers = *std::move(layers);
  absl::StatusOr<std::vector<TierWish>> tiers = TiersFromProto(proto);
  if (!tiers.ok()) return tiers.status();
  call.tiers = *std::move(tiers);
  return call;
}

}  // namespace pagoda

#include "wire/cache_info.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "wire/vocabulary.h"

namespace pagoda {
namespace {

absl::Status Unknown(const char* what, int value) {
  return absl::InternalError(absl::StrCat("the daemon named an unknown ", what, ": ", value));
}

// --- Segments ---

void SegmentToProto(const MappingSegment& segment, v1::MappingSegment* out) {
  out->set_shm_name(segment.shm_name);
  out->set_offset_bytes(segment.offset_bytes);
  out->set_size_bytes(segment.size_bytes);
  out->set_first_slot(segment.first_slot);
  out->set_num_slots(segment.num_slots);
  out->set_memory_kind(MemoryKindToProto(segment.place.kind));
  if (segment.pages.has_value()) out->set_pages(MemoryPagesToProto(*segment.pages));
  if (segment.place.kind == MemoryKind::kHost) return;
  out->set_device(static_cast<uint32_t>(segment.place.device));
  out->set_device_uuid(segment.place.uuid.data(), segment.place.uuid.size());
}

// An older daemon names no kind. It has host memory only.
absl::StatusOr<MemoryPlace> PlaceFrom(const v1::MappingSegment& proto) {
  MemoryPlace place;
  if (proto.memory_kind() == v1::MEMORY_KIND_UNSPECIFIED) return place;
  const std::optional<MemoryKind> kind = MemoryKindFromProto(proto.memory_kind());
  if (!kind.has_value()) return Unknown("kind of memory", proto.memory_kind());
  place.kind = *kind;
  if (place.kind == MemoryKind::kHost) return place;
  if (proto.device_uuid().size() != place.uuid.size()) {
    return absl::InternalError(absl::StrCat("the daemon sent a device UUID of ",
                                            proto.device_uuid().size(), " bytes, not ",
                                            place.uuid.size()));
  }
  place.device = static_cast<int>(proto.device());
  std::copy(proto.device_uuid().begin(), proto.device_uuid().end(), place.uuid.begin());
  return place;
}

absl::StatusOr<MappingSegment> SegmentFromProto(const v1::MappingSegment& proto) {
  const absl::StatusOr<MemoryPlace> place = PlaceFrom(proto);
  if (!place.ok()) return place.status();
  return MappingSegment{.shm_name = proto.shm_name(),
                        .place = *place,
                        .offset_bytes = proto.offset_bytes(),
                        .size_bytes = proto.size_bytes(),
                        .first_slot = proto.first_slot(),
                        .num_slots = proto.num_slots(),
                        // Unknown pages are mapped like plain memory.
                        .pages = MemoryPagesFromProto(proto.pages())};
}

// --- Layouts of pools ---

void LayoutToProto(const PoolLayout& layout, v1::PoolMapping* out) {
  out->set_dtype(DTypeToProto(layout.dtype));
  out->mutable_layers()->Add(layout.layers.begin(), layout.layers.end());
  out->set_kv_factor(layout.kv_factor);
  out->set_num_kv_heads(layout.num_kv_heads);
  out->set_tokens_per_block(layout.tokens_per_block);
  out->set_head_dim(layout.head_dim);
  out->set_slot_stride_bytes(layout.slot_stride_bytes());
  out->set_layer_stride_bytes(layout.layer_stride_bytes());
  out->set_kv_stride_bytes(layout.kv_stride_bytes());
  out->set_head_stride_bytes(layout.head_stride_bytes());
  out->set_token_stride_bytes(layout.token_stride_bytes());
  out->set_content(PoolContentToProto(layout.content));
}

const char* ShapeOf(PoolContent content) {
  switch (content) {
    case PoolContent::kElements:
      break;
    case PoolContent::kScales:
      return "[layer][K, V][kv_head] of float32";
    case PoolContent::kOpaque:
      return "[layer][bytes] of uint8";
  }
  return "[layer][K, V][kv_head][token][head_dim]";
}

// The strides of the core's PoolLayout follow from its shape. A pool with other strides is refused
// here, because the client would misread it.
absl::Status CheckStrides(const v1::PoolMapping& proto, const PoolLayout& layout) {
  if (proto.slot_stride_bytes() == layout.slot_stride_bytes() &&
      proto.layer_stride_bytes() == layout.layer_stride_bytes() &&
      proto.kv_stride_bytes() == layout.kv_stride_bytes() &&
      proto.head_stride_bytes() == layout.head_stride_bytes() &&
      proto.token_stride_bytes() == layout.token_stride_bytes()) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("the daemon's pool ", proto.pool_index(), " is not ",
                                          ShapeOf(layout.content), ": its slot stride is ",
                                          proto.slot_stride_bytes(), " bytes, the shape's is ",
                                          layout.slot_stride_bytes()));
}

// Checks that a pool of scales or opaque bytes has the shape of its content.
absl::Status CheckContent(const v1::PoolMapping& proto, const PoolLayout& layout) {
  switch (layout.content) {
    case PoolContent::kElements:
      return absl::OkStatus();
    case PoolContent::kScales:
      if (layout.dtype == DType::kFloat32 && layout.head_dim == 0) return absl::OkStatus();
      break;
    case PoolContent::kOpaque:
      if (layout.dtype == DType::kUint8 && layout.head_dim == 0 && layout.num_kv_heads == 0 &&
          layout.kv_factor == 1) {
        return absl::OkStatus();
      }
      break;
  }
  return absl::InternalError(
      absl::StrCat("the daemon's pool ", proto.pool_index(), " is not ", ShapeOf(layout.content),
                   ": dtype ", static_cast<int>(proto.dtype()), ", kv_factor ", layout.kv_factor,
                   ", num_kv_heads ", layout.num_kv_heads, ", head_dim ", layout.head_dim));
}

// An older daemon names no content. Its pools hold elements only.
std::optional<PoolContent> ContentFrom(const v1::PoolMapping& proto) {
  if (proto.content() == v1::POOL_CONTENT_UNSPECIFIED) return PoolContent::kElements;
  return PoolContentFromProto(proto.content());
}

absl::StatusOr<PoolLayout> LayoutFromProto(const v1::PoolMapping& proto) {
  const std::optional<DType> dtype = DTypeFromProto(proto.dtype());
  if (!dtype.has_value()) return Unknown("dtype", proto.dtype());
  const std::optional<PoolContent> content = ContentFrom(proto);
  if (!content.has_value()) return Unknown("content of a pool", proto.content());
  PoolLayout layout{.layers = {proto.layers().begin(), proto.layers().end()},
                    .num_kv_heads = proto.num_kv_heads(),
                    .head_dim = proto.head_dim(),
                    .dtype = *dtype,
                    .kv_factor = proto.kv_factor(),
                    .tokens_per_block = proto.tokens_per_block(),
                    .content = *content};
  if (*content == PoolContent::kOpaque) layout.bytes_per_block = proto.layer_stride_bytes();
  if (absl::Status status = CheckContent(proto, layout); !status.ok()) return status;
  if (absl::Status status = CheckStrides(proto, layout); !status.ok()) return status;
  return layout;
}

}  // namespace

void PoolMappingToProto(const PoolMapping& mapping, v1::PoolMapping* out) {
  out->set_window_size(WindowToProto(mapping.window));
  out->set_pool_index(mapping.pool_index);
  out->set_tier(TierToProto(mapping.tier));
  LayoutToProto(mapping.layout, out);
  out->set_num_slots(mapping.num_slots);
  for (const MappingSegment& segment : mapping.segments) {
    SegmentToProto(segment, out->add_segments());
  }
}

absl::StatusOr<PoolMapping> PoolMappingFromProto(const v1::PoolMapping& proto) {
  const std::optional<Tier> tier = TierFromProto(proto.tier());
  if (!tier.has_value()) return Unknown("tier", proto.tier());
  absl::StatusOr<PoolLayout> layout = LayoutFromProto(proto);
  if (!layout.ok()) return layout.status();
  PoolMapping mapping{.window = WindowFromProto(proto.window_size()),
                      .pool_index = proto.pool_index(),
                      .tier = *tier,
                      .layout = *std::move(layout),
                      .num_slots = proto.num_slots(),
                      .segments = {}};
  for (const v1::MappingSegment& proto_segment : proto.segments()) {
    absl::StatusOr<MappingSegment> segment = SegmentFromProto(proto_segment);
    if (!segment.ok()) return segment.status();
    mapping.segments.push_back(*std::move(segment));
  }
  return mapping;
}

void CacheInfoToProto(const CacheInfo& info, v1::CacheInfo* out) {
  out->set_name(info.name);
  out->set_model_fingerprint(info.model_fingerprint);
  out->set_tokens_per_block(info.tokens_per_block);
  for (size_t t = 0; t < info.tiers.size(); ++t) {
    v1::TierInfo* proto = out->add_tiers();
    proto->set_tier(TierToProto(Tier(t)));
    proto->set_name(info.tiers[t].name);
    proto->set_medium(MediumToProto(info.tiers[t].medium));
  }
  for (const CacheInfo::Window& window : info.windows) {
    v1::WindowInfo* proto = out->add_windows();
    proto->set_window_size(WindowToProto(window.window));
    for (const uint32_t blocks : window.blocks) proto->add_blocks(blocks);
  }
}

CacheInfo CacheInfoFromProto(const v1::CacheInfo& proto) {
  CacheInfo info{.name = proto.name(),
                 .model_fingerprint = proto.model_fingerprint(),
                 .tokens_per_block = proto.tokens_per_block(),
                 .tiers = {},
                 .windows = {}};
  for (const v1::TierInfo& tier : proto.tiers()) {
    info.tiers.push_back(
        {.name = tier.name(), .medium = MediumFromProto(tier.medium()).value_or(Medium::kHost)});
  }
  for (const v1::WindowInfo& window : proto.windows()) {
    CacheInfo::Window& one = info.windows.emplace_back();
    one.window = WindowFromProto(window.window_size());
    one.blocks = {window.blocks().begin(), window.blocks().end()};
  }
  return info;
}

}  // namespace pagoda

#include "clients/cpp/translate.h"

namespace pagoda {

uint32_t WindowToProto(WindowSize window) { return window == kFullAttention ? 0 : window.value(); }

WindowSize WindowFromProto(uint32_t window_size) {
  return window_size == 0 ? kFullAttention : WindowSize(window_size);
}

namespace {

Medium MediumFromProto(v1::Medium medium) {
  switch (medium) {
    case v1::MEDIUM_GPU:
      return Medium::kGpu;
    case v1::MEDIUM_DISK:
      return Medium::kDisk;
    default:
      return Medium::kHost;
  }
}

}  // namespace

CacheInfo CacheInfoFromProto(const v1::CacheInfo& proto) {
  CacheInfo info{.name = proto.name(),
                 .model_fingerprint = proto.model_fingerprint(),
                 .rank = proto.rank(),
                 .tokens_per_block = proto.tokens_per_block(),
                 .tiers = {},
                 .windows = {}};
  for (const v1::TierInfo& tier : proto.tiers()) {
    info.tiers.push_back({.name = tier.name(), .medium = MediumFromProto(tier.medium())});
  }
  for (const v1::WindowInfo& window : proto.windows()) {
    CacheInfo::Window& one = info.windows.emplace_back();
    one.window = WindowFromProto(window.window_size());
    one.blocks = {window.blocks().begin(), window.blocks().end()};
    // A daemon from before there was a list.
    if (one.blocks.empty()) one.blocks = {window.primary_blocks(), window.secondary_blocks()};
  }
  return info;
}

}  // namespace pagoda

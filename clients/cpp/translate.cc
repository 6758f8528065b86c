#include "clients/cpp/translate.h"

namespace pagoda {

uint32_t WindowToProto(WindowSize window) { return window == kFullAttention ? 0 : window.value(); }

WindowSize WindowFromProto(uint32_t window_size) {
  return window_size == 0 ? kFullAttention : WindowSize(window_size);
}

CacheInfo CacheInfoFromProto(const v1::CacheInfo& proto) {
  CacheInfo info{.name = proto.name(),
                 .model_fingerprint = proto.model_fingerprint(),
                 .rank = proto.rank(),
                 .tokens_per_block = proto.tokens_per_block(),
                 .windows = {}};
  for (const v1::WindowInfo& window : proto.windows()) {
    info.windows.push_back({WindowFromProto(window.window_size()), window.primary_blocks(),
                            window.secondary_blocks()});
  }
  return info;
}

}  // namespace pagoda

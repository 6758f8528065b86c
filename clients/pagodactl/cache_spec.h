// A cache that "pagodactl caches open" asks for, as it stands on the command line.
#ifndef PAGODA_CLIENTS_PAGODACTL_CACHE_SPEC_H_
#define PAGODA_CLIENTS_PAGODACTL_CACHE_SPEC_H_

#include <string>

#include "absl/status/statusor.h"
#include "pagoda/v1/caches.pb.h"

namespace pagoda {

// Layers that are alike:
//   "32x8x128:bfloat16"         32 layers of 8 KV heads of 128 elements
//   "32xK576:bfloat16"          K alone, one head of 576 elements; "32xK4x128" has four heads
//   "24xopaque:65536"           65,536 bytes a block and layer, or "24xopaque:64KiB"
//   "26x8x128:bfloat16@4096"    the same with an attention window of 4,096 tokens
// Without a dtype it is bfloat16. Every dtype of the contract has its name in lower case. What the
// numbers may be is the daemon's to judge. Errors: INVALID_ARGUMENT, with the text.
absl::StatusOr<v1::LayerGroup> ParseLayerGroup(const std::string& text);
// As ParseLayerGroup reads it: "26x8x128:bfloat16@4096".
std::string LayerGroupText(const v1::LayerGroup& group);

// How much of a tier: bytes ("8GiB"), or a share of what is free of the daemon's budget ("50%",
// "12.5%"), in whole tenths of a percent. Errors: INVALID_ARGUMENT, with the text.
absl::StatusOr<v1::TierSize> ParseTierSize(const std::string& text, v1::Medium medium);

// "host": a medium in lower case.
std::string MediumText(v1::Medium medium);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_CACHE_SPEC_H_

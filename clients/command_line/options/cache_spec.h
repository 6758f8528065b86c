// The command-line forms of the layers and sizes of "pagodactl caches open".
#ifndef PAGODA_CLIENTS_COMMAND_LINE_OPTIONS_CACHE_SPEC_H_
#define PAGODA_CLIENTS_COMMAND_LINE_OPTIONS_CACHE_SPEC_H_

#include <string>

#include "absl/status/statusor.h"
#include "pagoda/v1/caches.pb.h"

namespace pagoda {

// Parses a group of equal layers:
//   "32x8x128:bfloat16"         32 layers of 8 KV heads of 128 elements
//   "32xK576:bfloat16"          K alone, one head of 576 elements; "32xK4x128" has four heads
//   "24xopaque:65536"           65,536 bytes a block and layer, or "24xopaque:64KiB"
//   "26x8x128:bfloat16@4096"    the same with an attention window of 4,096 tokens
// The default dtype is bfloat16. Each dtype of the wire contract is named in lower case. The daemon
// checks the numbers. Errors: INVALID_ARGUMENT, with the text.
absl::StatusOr<v1::LayerGroup> ParseLayerGroup(const std::string& text);
// The text that ParseLayerGroup reads: "26x8x128:bfloat16@4096".
std::string LayerGroupText(const v1::LayerGroup& group);

// Parses the size of a tier: bytes with a unit ("8GiB"), or a share of the free part of the
// daemon's budget ("50%", "12.5%") in tenths of a percent. Errors: INVALID_ARGUMENT, with the text.
absl::StatusOr<v1::TierSize> ParseTierSize(const std::string& text, v1::Medium medium);

// "host", as MediumName; "medium 9" for one that this program does not know.
std::string MediumText(v1::Medium medium);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_COMMAND_LINE_OPTIONS_CACHE_SPEC_H_

// Cuts a text at the matches of a pattern.
#ifndef PAGODA_ENGINE_TEXT_SPLIT_SPLIT_H_
#define PAGODA_ENGINE_TEXT_SPLIT_SPLIT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/text/split/pattern.h"

namespace pagoda {

// The place of a match.
enum class SplitBehavior : uint8_t {
  kRemoved,
  kIsolated,            // A separate part.
  kMergedWithPrevious,  // At the end of the part before it.
  kMergedWithNext,      // At the beginning of the part behind it.
  kContiguous,          // One part with the matches that follow it directly.
};

// Nothing for an unknown name ("MergedWithNext" is a known one).
std::optional<SplitBehavior> SplitBehaviorFromName(absl::string_view name);

// kBetween: the text between the matches counts as matches, and the matches as text.
enum class SplitMatches : uint8_t { kPattern, kBetween };

// The parts of a text of `size` bytes, from left to right, without empty ones. `matches` are from
// left to right and do not overlap.
std::vector<TextRange> SplitText(size_t size, const std::vector<TextRange>& matches,
                                 SplitBehavior behavior,
                                 SplitMatches what = SplitMatches::kPattern);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_SPLIT_SPLIT_H_

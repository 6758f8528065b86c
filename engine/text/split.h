// How a text is cut where a pattern matches.
#ifndef PAGODA_ENGINE_TEXT_SPLIT_H_
#define PAGODA_ENGINE_TEXT_SPLIT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/text/pattern.h"

namespace pagoda {

// Where a match goes.
enum class SplitBehavior : uint8_t {
  kRemoved,
  kIsolated,            // It is a part of its own.
  kMergedWithPrevious,  // To the end of the part before it.
  kMergedWithNext,      // To the beginning of the part behind it.
  kContiguous,          // One part with the matches right behind it.
};

// None where there is no such name ("MergedWithNext").
std::optional<SplitBehavior> SplitBehaviorFromName(absl::string_view name);

// What is between the matches counts as them, and the other way round.
enum class SplitMatches : uint8_t { kPattern, kBetween };

// The parts of a text of `size` bytes, from left to right; `matches` are from left to right and do
// not overlap. Empty parts are left out.
std::vector<TextRange> SplitText(size_t size, const std::vector<TextRange>& matches,
                                 SplitBehavior behavior,
                                 SplitMatches what = SplitMatches::kPattern);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_SPLIT_H_

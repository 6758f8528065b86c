#include "engine/text/split/split.h"

#include <algorithm>

namespace pagoda {
namespace {

struct Piece {
  TextRange range;
  bool is_match = false;
};

std::vector<Piece> PiecesOf(size_t size, const std::vector<TextRange>& matches, SplitMatches what) {
  std::vector<Piece> pieces;
  const auto add = [&](size_t begin, size_t end, bool in_pattern) {
    if (begin == end) return;
    pieces.push_back({{begin, end}, in_pattern == (what == SplitMatches::kPattern)});
  };
  size_t done = 0;
  for (const TextRange& match : matches) {
    add(done, match.begin, false);
    add(match.begin, match.end, true);
    done = match.end;
  }
  add(done, size, false);
  return pieces;
}

// Whether a piece joins the part of the piece before it, in the order of merging.
bool Joins(const Piece& piece, bool after_match, SplitBehavior behavior) {
  if (behavior == SplitBehavior::kContiguous) return piece.is_match == after_match;
  return piece.is_match && !after_match;
}

std::vector<TextRange> Merge(const std::vector<Piece>& pieces, SplitBehavior behavior) {
  std::vector<TextRange> parts;
  bool after_match = false;
  for (const Piece& piece : pieces) {
    if (!parts.empty() && Joins(piece, after_match, behavior)) {
      parts.back().begin = std::min(parts.back().begin, piece.range.begin);
      parts.back().end = std::max(parts.back().end, piece.range.end);
    } else {
      parts.push_back(piece.range);
    }
    after_match = piece.is_match;
  }
  return parts;
}

}  // namespace

std::optional<SplitBehavior> SplitBehaviorFromName(absl::string_view name) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return std::nullopt;
}

std::vector<TextRange> SplitText(size_t size, const std::vector<TextRange>& matches,
                                 SplitBehavior behavior, SplitMatches what) {
  std::vector<Piece> pieces = PiecesOf(size, matches, what);
  if (behavior == SplitBehavior::kRemoved || behavior == SplitBehavior::kIsolated) {
    std::vector<TextRange> parts;
    for (const Piece& piece : pieces) {
      if (piece.is_match && behavior == SplitBehavior::kRemoved) continue;
      parts.push_back(piece.range);
    }
    return parts;
  }
  if (behavior != SplitBehavior::kMergedWithNext) return Merge(pieces, behavior);
  std::reverse(pieces.begin(), pieces.end());
  std::vector<TextRange> parts = Merge(pieces, behavior);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace pagoda

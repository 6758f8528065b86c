#include "clients/pagodactl/prefix/inspect_text.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clients/command_line/terminal/format.h"
#include "clients/pagodactl/command/admin_client.h"
#include "wire/vocabulary.h"

namespace pagoda {
namespace {

using Blocks = std::vector<const v1::InspectedBlock*>;

constexpr size_t kMostCells = 64;  // In a row.
constexpr size_t kMargin = 14;     // Left of a row: its first token.

struct Cell {
  const char* unicode;
  const char* ascii;
  Style style;
};
// By tier.
constexpr Cell kTierCells[] = {{"█", "#", Style::kGreen},
                               {"▓", "=", Style::kBlue},
                               {"▒", "-", Style::kBlue},
                               {"░", "~", Style::kBlue}};
static_assert(std::size(kTierCells) == kMaxTiers);
constexpr Cell kPinnedCell = {"◆", "!", Style::kYellow};
constexpr Cell kMissingCell = {"·", ".", Style::kDim};

std::string Draw(const Cell& cell, const Terminal& terminal) {
  return Paint(terminal, cell.style, terminal.unicode ? cell.unicode : cell.ascii);
}

const Cell& CellOf(const v1::InspectedBlock* block) {
  if (block == nullptr) return kMissingCell;
  if (block->pinned()) return kPinnedCell;
  // A tier that this program does not know is drawn as the last one.
  const auto place = static_cast<size_t>(std::max<int>(block->tier() - v1::TIER_PRIMARY, 0));
  return kTierCells[std::min(place, kMaxTiers - 1)];
}

// The blocks by position in the prompt; nullptr if nothing is cached there.
Blocks BlocksOf(const v1::InspectPrefixResponse& prefix, uint32_t window_size,
                uint32_t tokens_per_block, uint32_t token_count) {
  Blocks blocks((uint64_t{token_count} + tokens_per_block - 1) / tokens_per_block);
  for (const v1::InspectedBlock& block : prefix.blocks()) {
    const size_t index = block.token_start() / tokens_per_block;
    if (block.window_size() == window_size && index < blocks.size()) blocks[index] = &block;
  }
  return blocks;
}

void AppendPicture(const Blocks& blocks, uint32_t tokens_per_block, const Terminal& terminal,
                   std::string* out) {
  const auto room = static_cast<size_t>(std::max(terminal.columns, 1));
  const size_t cells = std::clamp<size_t>(room > kMargin ? room - kMargin : 1, 1, kMostCells);
  for (size_t i = 0; i < blocks.size(); i += cells) {
    absl::StrAppendFormat(out, "  %10s  ", FormatCount(uint64_t{i} * tokens_per_block));
    for (size_t j = i; j < std::min(i + cells, blocks.size()); ++j) {
      out->append(Draw(CellOf(blocks[j]), terminal));
    }
    out->append("\n");
  }
}

// All tiers that have the block's bytes, nearest first: "primary+nvme".
std::string TiersText(const v1::InspectedBlock& block, const v1::CacheInfo& cache) {
  std::string text = TierText(block.tier(), block.tier_name());
  for (const int tier : block.lower_tiers()) {
    absl::StrAppend(&text, "+", TierText(static_cast<v1::Tier>(tier), cache));
  }
  return text;
}

bool Alike(const v1::InspectedBlock& a, const v1::InspectedBlock& b) {
  return a.tier() == b.tier() && absl::c_equal(a.lower_tiers(), b.lower_tiers()) &&
         a.priority() == b.priority() && a.holders() == b.holders() && a.pinned() == b.pinned();
}

void AppendRuns(const Blocks& blocks, const v1::CacheInfo& cache, std::string* out) {
  size_t width = 10;  // The width of the column of tiers.
  for (const v1::InspectedBlock* block : blocks) {
    if (block != nullptr) width = std::max(width, TiersText(*block, cache).size());
  }
  const auto tiers_width = static_cast<int>(width);
  absl::StrAppendFormat(out, "  %-23s  %8s  %-*s  %8s  %8s  %s\n", "TOKENS", "BLOCKS", tiers_width,
                        "TIER", "PRIORITY", "HOLDERS", "PINNED");
  for (size_t begin = 0, end = 0; begin < blocks.size(); begin = end) {
    end = begin + 1;
    if (blocks[begin] == nullptr) continue;
    const v1::InspectedBlock& first = *blocks[begin];
    while (end < blocks.size() && blocks[end] != nullptr && Alike(first, *blocks[end])) ++end;
    const v1::InspectedBlock& last = *blocks[end - 1];
    absl::StrAppendFormat(out, "  %-23s  %8s  %-*s  %8d  %8d  %s\n",
                          absl::StrCat(FormatCount(first.token_start()), " to ",
                                       FormatCount(last.token_start() + last.token_count() - 1)),
                          FormatCount(end - begin), tiers_width, TiersText(first, cache),
                          first.priority(), first.holders(), first.pinned() ? "yes" : "no");
  }
}

int TierCount(const v1::CacheInfo& cache) {
  // A daemon that does not list its tiers has two.
  return cache.tiers().empty() ? 2 : std::min<int>(cache.tiers_size(), kMaxTiers);
}

std::string TierNameAt(int index, const v1::CacheInfo& cache) {
  return TierText(static_cast<v1::Tier>(v1::TIER_PRIMARY + index), cache);
}

bool HasDisk(const v1::CacheInfo& cache) {
  return absl::c_any_of(cache.tiers(),
                        [](const v1::TierInfo& tier) { return tier.medium() == v1::MEDIUM_DISK; });
}

// The prompt's tokens by the nearest copies of the largest window, and the tiers' names.
std::vector<std::pair<std::string, uint64_t>> TokensByTier(const v1::InspectPrefixResponse& prefix,
                                                           const v1::CacheInfo& cache) {
  std::vector<std::pair<std::string, uint64_t>> tokens;
  for (int t = 0; t < TierCount(cache); ++t) tokens.emplace_back(TierNameAt(t, cache), 0);
  if (cache.windows().empty()) return tokens;
  const uint32_t largest = cache.windows(cache.windows_size() - 1).window_size();
  for (const v1::InspectedBlock& block : prefix.blocks()) {
    const auto place = static_cast<size_t>(block.tier() - v1::TIER_PRIMARY);
    if (block.window_size() == largest && place < tokens.size()) {
      tokens[place].second += block.token_count();
    }
  }
  return tokens;
}

}  // namespace

std::string InspectText(const v1::InspectPrefixResponse& prefix, const v1::CacheInfo& cache,
                        uint32_t token_count, const Terminal& terminal) {
  std::string text = absl::StrFormat("%s of %s match (%s)\n", FormatCount(prefix.matched_tokens()),
                                     FormatCounted(token_count, "token"),
                                     FormatShare(Share(prefix.matched_tokens(), token_count)));
  // Blocks on disk are cached, but do not match before they are fetched.
  if (HasDisk(cache) && !prefix.blocks().empty()) {
    absl::StrAppend(&text, "cached: ", FormatParts(TokensByTier(prefix, cache)), "\n");
  }
  for (const v1::WindowInfo& window : cache.windows()) {
    const Blocks blocks =
        BlocksOf(prefix, window.window_size(), cache.tokens_per_block(), token_count);
    const auto cached =
        std::count_if(blocks.begin(), blocks.end(), [](const auto* block) { return block; });
    absl::StrAppend(&text, "\n", Paint(terminal, Style::kBold, "window"), " ",
                    WindowName(WindowFromProto(window.window_size())), ": ", FormatCount(cached),
                    " of ", FormatCached(blocks.size(), "block"), "\n");
    AppendPicture(blocks, cache.tokens_per_block(), terminal, &text);
    if (cached > 0) AppendRuns(blocks, cache, &text);
  }
  absl::StrAppend(&text, "\n");
  for (int t = 0; t < TierCount(cache); ++t) {
    const bool is_disk = t < cache.tiers_size() && cache.tiers(t).medium() == v1::MEDIUM_DISK;
    absl::StrAppend(&text, Draw(kTierCells[t], terminal), " ", TierNameAt(t, cache),
                    is_disk ? " (disk)  " : "  ");
  }
  absl::StrAppend(&text, Draw(kPinnedCell, terminal), " pinned  ", Draw(kMissingCell, terminal),
                  " not cached\n");
  return text;
}

}  // namespace pagoda

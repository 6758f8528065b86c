#include "clients/pagoda_plan/size/ladder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/byte_size.h"
#include "base/check.h"
#include "base/error.h"
#include "clients/command_line/terminal/format.h"
#include "manager/words/tier_spec.h"

namespace pagoda {
namespace {

absl::Status Refuse(const std::string& what) { return MakeError(Reason::kInvalidArgument, what); }

// A size of 0 is not valid.
std::optional<TierBudget> ParseSize(const std::string& text) {
  uint32_t blocks = 0;
  if (absl::SimpleAtoi(text, &blocks)) {
    if (blocks == 0 || blocks > kMaxBlocks) return std::nullopt;
    return BlockBudget{{blocks}};
  }
  const std::optional<uint64_t> bytes = ParseByteSizeWithUnit(text);
  if (!bytes.has_value() || *bytes == 0) return std::nullopt;
  return ByteBudget{*bytes};
}

absl::StatusOr<LadderTier> ParseTier(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  if (parts.size() != 3) {
    return Refuse(absl::StrCat("\"", text, "\" is not NAME:MEDIUM:SIZE"));
  }
  if (absl::Status status = CheckTierName(parts[0]); !status.ok()) return status;
  const std::optional<Medium> medium = MediumFromName(parts[1]);
  if (!medium.has_value()) {
    return Refuse(absl::StrCat("\"", parts[1], "\" is not a medium: gpu, host or disk"));
  }
  if (!ParseSize(parts[2]).has_value()) {
    return Refuse(absl::StrCat("\"", parts[2], "\" is neither ", kByteSizeForms, " nor 1 to ",
                               kMaxBlocks, " blocks"));
  }
  return TierOfSize(parts[0], *medium, parts[2]);
}

// The daemon has the same rules. `above`: null for the first tier.
absl::Status CheckPlace(const LadderTier& tier, const LadderTier* above) {
  const bool is_disk = tier.medium == Medium::kDisk;
  if (above == nullptr) {
    if (!is_disk) return absl::OkStatus();
    return Refuse(absl::StrCat("tier '", tier.name,
                               "' is the first tier, where engines compute; it cannot be on disk"));
  }
  if (tier.medium == Medium::kGpu) {
    return Refuse(
        absl::StrCat("tier '", tier.name, "' is in GPU memory; only the first tier can be"));
  }
  if (above->medium == Medium::kDisk) {
    return Refuse(absl::StrCat("tier '", above->name, "' is on disk; only the last tier can be"));
  }
  if (is_disk && above->medium != Medium::kHost) {
    return Refuse(absl::StrCat("tier '", tier.name,
                               "' is on disk; the tier right above it must be in host memory"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string LadderTier::SizeText() const {
  if (!in_blocks()) return size;
  return FormatCounted(std::get<BlockBudget>(budget).blocks.front(), "block");
}

LadderTier TierOfSize(std::string name, Medium medium, const std::string& size) {
  const std::optional<TierBudget> budget = ParseSize(size);
  PAGODA_CHECK(budget.has_value(), "a size that was checked");
  return {.name = std::move(name), .medium = medium, .size = size, .budget = *budget};
}

absl::StatusOr<std::vector<LadderTier>> ParseLadder(const std::string& text) {
  std::vector<LadderTier> ladder;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    absl::StatusOr<LadderTier> tier = ParseTier(std::string(part));
    if (!tier.ok()) return tier.status();
    const LadderTier* above = ladder.empty() ? nullptr : &ladder.back();
    if (absl::Status status = CheckPlace(*tier, above); !status.ok()) return status;
    for (const LadderTier& other : ladder) {
      if (other.name != tier->name) continue;
      return Refuse(absl::StrCat("two tiers are named '", tier->name, "'"));
    }
    ladder.push_back(*std::move(tier));
  }
  if (ladder.size() <= kMaxTiers) return ladder;
  return Refuse(absl::StrCat(ladder.size(), " tiers; a cache has 1 to ", kMaxTiers));
}

std::string CheckLadder(const std::string& text) {
  return std::string(ParseLadder(text).status().message());
}

std::vector<TierRequest> TierRequests(const std::vector<LadderTier>& ladder) {
  std::vector<TierRequest> requests;
  for (const LadderTier& tier : ladder) {
    requests.push_back({.budget = tier.budget, .medium = tier.medium, .name = tier.name});
  }
  return requests;
}

const LadderTier* FindDisk(const std::vector<LadderTier>& ladder) {
  const auto disk = std::find_if(ladder.begin(), ladder.end(), [](const LadderTier& tier) {
    return tier.medium == Medium::kDisk;
  });
  return disk == ladder.end() ? nullptr : &*disk;
}

}  // namespace pagoda

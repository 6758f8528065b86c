#include "clients/pagodactl/prefix/prefetch.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "clients/command_line/terminal/format.h"
#include "clients/pagodactl/prefix/ticket_wait.h"

namespace pagoda {
namespace {

bool IsOnDisk(const CacheInfo& cache, size_t tier) {
  return tier < cache.tiers.size() && cache.tiers[tier].medium == Medium::kDisk;
}

size_t MemoryTiers(const CacheInfo& cache) {
  return std::count_if(cache.tiers.begin(), cache.tiers.end(), [](const CacheInfo::TierInfo& tier) {
    return tier.medium != Medium::kDisk;
  });
}

// Whether blocks are onboarded to the first tier from another memory tier.
bool MovesUp(const PrefetchReport& report, const CacheInfo& cache) {
  return report.target == PrefetchTarget::kPrimary && MemoryTiers(cache) > 1;
}

uint64_t TokensOnDisk(const MatchedPrefix& matched, const CacheInfo& cache) {
  uint64_t tokens = 0;
  for (size_t t = 0; t < matched.tokens_by_tier.size(); ++t) {
    if (IsOnDisk(cache, t)) tokens += matched.tokens_by_tier[t];
  }
  return tokens;
}

// Adds one token to the prefix, because the last token of a prompt never matches. The last key of
// keys does match.
MatchPrefix MatchOf(const PrefetchPrefix& prefetch) {
  MatchPrefix match = {.name_space = prefetch.name_space,
                       .tokens = prefetch.tokens,
                       .extra_token_ids = prefetch.extra_token_ids,
                       .multimodal_items = prefetch.multimodal_items,
                       .keys = prefetch.keys};
  if (match.name_space.keyed) return match;
  match.tokens.push_back(0);
  if (!match.extra_token_ids.empty()) match.extra_token_ids.push_back(0);
  return match;
}

void Add(PrefetchedPrefix ordered, PrefetchedPrefix& sum) {
  ordered.matched_tokens = std::max(ordered.matched_tokens, sum.matched_tokens);
  ordered.blocks += sum.blocks;
  ordered.fetched_blocks += sum.fetched_blocks;
  sum = ordered;
}

absl::Status AwaitAll(CacheClient& client, const PrefetchedPrefix& ordered,
                      absl::Duration patience) {
  absl::Status status = AwaitTicket(client, ordered.ready, Lane::kMemory, patience);
  if (!status.ok()) return status;
  status = AwaitTicket(client, ordered.fetch, Lane::kFetch, patience);
  if (ReasonOf(status) != Reason::kWaitTimeout) return status;
  return MakeError(Reason::kWaitTimeout,
                   absl::StrCat("nothing arrived from disk for ", FormatElapsed(patience),
                                "; ordered blocks may still arrive (wait longer with --timeout)"));
}

std::string TextWithDisk(const PrefetchReport& report, const CacheInfo& cache,
                         const std::string& disk) {
  const MatchedPrefix& end = *report.end;
  const uint64_t on_disk = TokensOnDisk(end, cache);
  const bool has_left = end.cached_tokens < report.sum.matched_tokens;
  std::string text;
  if (MovesUp(report, cache)) {
    absl::StrAppend(&text, FormatBlocks(report.sum.blocks), " onboarded to the ",
                    cache.TierName(kPrimaryTier), " tier, ");
  }
  absl::StrAppend(&text, FormatBlocks(report.sum.fetched_blocks),
                  on_disk == 0 && !has_left ? " fetched from the " : " ordered from the ", disk,
                  " tier, in ", FormatElapsed(report.elapsed), "\n",
                  FormatCounted(end.cached_tokens, "token"), " cached");
  std::vector<std::pair<std::string, uint64_t>> parts;
  for (size_t t = 0; t < end.tokens_by_tier.size(); ++t) {
    parts.emplace_back(cache.TierName(Tier(t)), end.tokens_by_tier[t]);
  }
  const std::string by_tier = FormatParts(parts);
  if (!by_tier.empty()) absl::StrAppend(&text, ": ", by_tier);
  if (on_disk > 0) {
    const bool is_late = report.elapsed >= report.deadline;
    absl::StrAppend(&text, "\n", FormatCounted(on_disk, "token"), " still only on the ", disk,
                    " tier: ",
                    is_late ? absl::StrCat("the ", FormatElapsed(report.deadline), " are over")
                            : "memory has no free blocks for them now");
  }
  if (has_left) {
    absl::StrAppend(&text, "\n",
                    FormatCounted(report.sum.matched_tokens - end.cached_tokens, "token"),
                    " left the cache meanwhile");
  }
  return text;
}

}  // namespace

std::optional<std::string> DiskName(const CacheInfo& cache) {
  for (const CacheInfo::TierInfo& tier : cache.tiers) {
    if (tier.medium == Medium::kDisk) return tier.name;
  }
  return std::nullopt;
}

absl::StatusOr<PrefetchReport> OrderPrefetch(CacheClient& client, const PrefetchPrefix& prefetch) {
  const absl::StatusOr<PrefetchedPrefix> ordered = RunOne<PrefetchedPrefix>(client, prefetch);
  if (!ordered.ok()) return ordered.status();
  return PrefetchReport{.target = prefetch.target, .deadline = prefetch.deadline, .sum = *ordered};
}

absl::StatusOr<PrefetchReport> RunPrefetch(CacheClient& client, const PrefetchPrefix& prefetch,
                                           absl::Duration patience) {
  const CacheInfo& cache = client.info();
  const absl::Time start = absl::Now();
  const absl::Time end = start + prefetch.deadline;
  PrefetchReport report{.target = prefetch.target, .deadline = prefetch.deadline};
  PrefetchPrefix round = prefetch;
  uint64_t left = std::numeric_limits<uint64_t>::max();  // On disk after the round before.
  while (true) {
    const absl::StatusOr<PrefetchedPrefix> ordered = RunOne<PrefetchedPrefix>(client, round);
    if (!ordered.ok()) return ordered.status();
    Add(*ordered, report.sum);
    if (absl::Status status = AwaitAll(client, *ordered, patience); !status.ok()) return status;
    if (!DiskName(cache).has_value()) break;

    absl::StatusOr<MatchedPrefix> matched = RunOne<MatchedPrefix>(client, MatchOf(prefetch));
    if (!matched.ok()) return matched.status();
    report.end = *std::move(matched);
    const uint64_t on_disk = TokensOnDisk(*report.end, cache);
    if (ordered->fetch == Ticket{} || on_disk >= left || absl::Now() >= end) break;
    // Fetched blocks are in the last memory tier. Another round onboards them.
    if (on_disk == 0 && !MovesUp(report, cache)) break;
    left = on_disk;
    round.deadline = std::max(absl::ZeroDuration(), end - absl::Now());
  }
  report.elapsed = absl::Now() - start;
  return report;
}

std::string PrefetchText(const PrefetchReport& report, const CacheInfo& cache) {
  if (const auto disk = DiskName(cache)) return TextWithDisk(report, cache, *disk);
  const std::string cached = FormatCached(report.sum.matched_tokens, "token");
  if (report.target == PrefetchTarget::kMemory) {
    return absl::StrCat("nothing to fetch, because the cache has no disk tier; ", cached);
  }
  // Not a failure: all cached blocks are in the first tier.
  if (!cache.has_lower_tiers()) {
    return absl::StrCat("nothing to onboard, because the cache has only one tier; ", cached);
  }
  return absl::StrCat(FormatBlocks(report.sum.blocks), " onboarded to the ",
                      cache.TierName(kPrimaryTier), " tier, ", cached);
}

std::string OrderedPrefetchText(const PrefetchReport& report, const CacheInfo& cache) {
  std::vector<std::string> ordered;
  if (report.target == PrefetchTarget::kPrimary) {
    ordered.push_back(absl::StrCat(FormatBlocks(report.sum.blocks), " being onboarded to the ",
                                   cache.TierName(kPrimaryTier), " tier"));
  }
  if (const auto disk = DiskName(cache)) {
    ordered.push_back(absl::StrCat(FormatBlocks(report.sum.fetched_blocks), " ordered from the ",
                                   *disk, " tier"));
  }
  ordered.push_back(FormatCached(report.sum.matched_tokens, "token"));
  return absl::StrJoin(ordered, ", ");
}

}  // namespace pagoda

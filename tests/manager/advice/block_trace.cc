#include "tests/manager/advice/block_trace.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <utility>

#include "base/check.h"
#include "manager/block_manager.h"
#include "manager/sequences/running_sequences.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/prompt_of.h"

namespace pagoda {
namespace {

constexpr uint32_t kTokensPerBlock = 4;
constexpr SequenceId kSequence{1};

TierSpec MemoryTier(size_t index, uint32_t blocks) {
  return {.name = DefaultTierName(Tier(index)), .blocks = {blocks}};
}

}  // namespace

std::vector<BlockPrompt> Conversations(uint64_t seed, size_t requests) {
  std::mt19937_64 random(seed);
  // Not std::uniform_..._distribution, whose results differ between libraries.
  const auto below = [&](uint64_t n) { return random() % n; };
  const auto unit = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  uint64_t next_id = 1;
  const auto fresh = [&](std::vector<uint64_t>& blocks, uint64_t count) {
    while (count-- > 0) blocks.push_back(next_id++);
  };
  std::vector<std::vector<uint64_t>> systems(20);
  for (auto& system : systems) fresh(system, 1 + below(12));
  std::vector<std::vector<uint64_t>> conversations;
  std::vector<BlockPrompt> trace;
  while (trace.size() < requests) {
    size_t which = conversations.size();
    if (conversations.empty() || below(4) == 0) {
      conversations.push_back(systems[static_cast<size_t>(std::pow(unit(), 3) * 20)]);
    } else {
      // The age of the next turn's conversation is log-uniform.
      const double oldest = std::min(static_cast<double>(which), 600.0);
      which -=
          std::clamp<size_t>(static_cast<size_t>(std::exp(unit() * std::log(oldest))), 1, which);
    }
    std::vector<uint64_t>& conversation = conversations[which];
    fresh(conversation, 1 + below(16));
    trace.push_back({.time_ms = static_cast<int64_t>(trace.size()) * 100, .blocks = conversation});
  }
  return trace;
}

TraceResult RunTrace(const std::vector<BlockPrompt>& requests, const TraceRun& run) {
  std::vector<TierSpec> tiers;
  for (const uint32_t blocks : run.tier_blocks) tiers.push_back(MemoryTier(tiers.size(), blocks));
  BlockManager::Options options{
      .layout = *CacheLayout::Create({.name = "trace",
                                      .tokens_per_block = kTokensPerBlock,
                                      .layers = {{.num_kv_heads = 1, .head_dim = 1}}}),
      .tiers = std::move(tiers),
      .eviction_policy = run.policy,
      .record_events = RecordEvents::kNo};
  options.max_distance_samples = run.samples;
  const std::unique_ptr<BlockManager> core = *BlockManager::Create(std::move(options));
  absl::Time now = absl::UnixEpoch();
  const SessionId session = core->OpenSession("trace", absl::InfiniteDuration(), now)->ref.id;
  uint64_t asked = 0, hits = 0;
  std::vector<TokenId> tokens;
  const auto finish_copies = [&] {
    for (const Order& copy : core->TakeOrders()) {
      core->Complete(copy.lane, copy.ticket, absl::OkStatus(), now);
    }
  };
  for (const BlockPrompt& request : requests) {
    now = std::max(now, absl::UnixEpoch() + absl::Milliseconds(request.time_ms));
    asked += request.blocks.size();
    if (request.blocks.empty() || request.blocks.size() >= run.tier_blocks.front()) continue;
    tokens.clear();
    for (const uint64_t id : request.blocks) {
      tokens.insert(tokens.end(), {static_cast<TokenId>(id), static_cast<TokenId>(id >> 32), 0, 0});
    }
    const auto computed = static_cast<uint32_t>(tokens.size());
    tokens.push_back(0);  // The last token of a prompt never matches.
    const absl::StatusOr<SequenceAdded> added =
        core->sequences().AddSequence(session, kSequence, PromptOf({}, tokens, computed), now);
    PAGODA_CHECK(added.ok(), "a request that fits an idle cache was refused");
    hits += added->matched_tokens / kTokensPerBlock;
    finish_copies();
    PAGODA_CHECK(core->sequences().CommitTokens(session, kSequence, {}, computed, now).ok() &&
                     core->sequences().FreeSequence(session, kSequence, now).ok(),
                 "a request runs to its end");
    finish_copies();
  }
  return {.hit_rate = static_cast<double>(hits) / static_cast<double>(asked),
          .counts = core->Stats().windows.front().reuse_distances};
}

}  // namespace pagoda

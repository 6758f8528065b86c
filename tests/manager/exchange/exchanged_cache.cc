#include "tests/manager/exchange/exchanged_cache.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/check.h"
#include "tests/base/require.h"
#include "tests/manager/fixtures/held_blocks.h"
#include "tests/manager/fixtures/host_tiers.h"

namespace pagoda {
namespace {

std::string FreshInstance() {
  static int count = 0;
  return "exchange-test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
}

// The bytes of a block depend on all tokens up to its end.
std::vector<std::byte> BytesOf(const Tokens& tokens, uint32_t index, size_t size) {
  std::seed_seq seed(tokens.begin(), tokens.begin() + (index + 1) * kBlockTokens);
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

constexpr SequenceId kTaken(1'000'000'000);

}  // namespace

Tokens TokensOf(uint32_t seed, uint32_t count) {
  std::mt19937 random(seed);
  Tokens tokens(count);
  for (TokenId& token : tokens) token = random() % 50'000;
  return tokens;
}

ExchangedCache::ExchangedCache(const Options& options) {
  CacheSpec spec = {.name = options.name,
                    .model_fingerprint = options.model,
                    .tokens_per_block = kBlockTokens,
                    .layers = {}};
  for (const WindowSize window : options.windows) {
    // Two shapes, so that a block has two pools.
    for (const uint32_t heads : {1, 2}) {
      spec.layers.push_back({.window = window, .num_kv_heads = heads, .head_dim = 4});
    }
  }
  const CacheLayout layout = Require(CacheLayout::Create(std::move(spec)));
  const size_t windows = layout.windows().size();
  const std::vector<uint32_t> primary(windows, options.blocks);
  std::vector<uint32_t> lower, lower_slots;
  if (options.lower_blocks > 0) {
    lower.assign(windows, options.lower_blocks);
    lower_slots.assign(windows, SlotsFor(Tier(1), options.lower_blocks));
  }
  pools_ = Require(PoolSet::Create(layout, {.tiers = {primary, lower_slots}}, FreshInstance()));
  manager_ = std::make_unique<SharedManager>(
      Require(BlockManager::Create({.layout = layout,
                                    .tiers = HostTiers(primary, lower),
                                    .pool_mappings = pools_->Mappings(),
                                    .epoch = Epoch(1),
                                    .tenants = options.tenants,
                                    .publish_min_uses = options.publish_min_uses})),
      &log_);
  transfers_ = std::make_unique<HostTransfers>(
      pools_.get(),
      HostTransfers::Options{
          .before_copy =
              [delay = options.copy_delay, fail = options.copies_fail](const Order&) {
                absl::SleepFor(delay);
                return fail != nullptr && *fail ? absl::InternalError("planned") : absl::OkStatus();
              }},
      [this](Lane lane, Ticket ticket, const absl::Status& status) {
        manager_->Complete(lane, ticket, status);
      });
  manager_->SetCarrier({Lane::kMemory}, transfers_.get());
  client_ = Require(OpenLocalCacheClient(manager_.get(), "engine"));
}

ExchangedCache::~ExchangedCache() {
  client_.reset();
  transfers_->Stop();
  manager_->SetCarrier({Lane::kMemory}, nullptr);
}

void ExchangedCache::CheckBlock(const BlockHandle& block, const Tokens& tokens, uint32_t index) {
  const size_t num_pools = pools_->layout().windows()[0].pools.size();
  for (uint32_t pool = 0; pool < num_pools; ++pool) {
    const absl::Span<std::byte> slot = pools_->pool(0, pool).slot(block.slot);
    const std::vector<std::byte> bytes = BytesOf(tokens, index, slot.size());
    PAGODA_CHECK(std::equal(slot.begin(), slot.end(), bytes.begin()), "cached KV is right");
  }
}

void ExchangedCache::WriteBlock(const BlockHandle& block, const Tokens& tokens, uint32_t index) {
  const size_t num_pools = pools_->layout().windows()[0].pools.size();
  for (uint32_t pool = 0; pool < num_pools; ++pool) {
    const absl::Span<std::byte> slot = pools_->pool(0, pool).slot(block.slot);
    const std::vector<std::byte> bytes = BytesOf(tokens, index, slot.size());
    std::copy(bytes.begin(), bytes.end(), slot.begin());
  }
}

uint32_t ExchangedCache::Compute(const Tokens& tokens, const NamespaceKey& name_space) {
  const SequenceId id(++last_sequence_);
  const AddedSequence added =
      Require(RunOne<AddedSequence>(*client_, AddSequence{.sequence = id,
                                                          .name_space = name_space,
                                                          .tokens = tokens,
                                                          .reserved_tokens = 0,
                                                          .extra_token_ids = {},
                                                          .multimodal_items = {},
                                                          .retention = {},
                                                          .whole_blocks_only = true}));
  Require(RunOne<WaitedForTicket>(*client_, WaitForTicket{.ticket = added.ready}));
  const uint32_t cached = added.matched_tokens / kBlockTokens;
  for (uint32_t i = 0; i < tokens.size() / kBlockTokens; ++i) {
    const BlockHandle& block = added.tables[0].blocks[i];
    i < cached ? CheckBlock(block, tokens, i) : WriteBlock(block, tokens, i);
  }
  Require(RunOne<CommittedTokens>(
      *client_,
      CommitTokens{
          .sequence = id, .tokens = {}, .computed_tokens = static_cast<uint32_t>(tokens.size())}));
  Require(RunOne<FreedSequence>(*client_, FreeSequence{.sequence = id}));
  return added.matched_tokens;
}

bool ExchangedCache::TryCompute(const Tokens& tokens) {
  const absl::StatusOr<CapacityAnswer> capacity = RunOne<CapacityAnswer>(
      *client_, QueryCapacity{.sequence = SequenceId(), .name_space = {}, .tokens = tokens});
  if (!capacity.ok() || capacity->windows[0].blocks_now > capacity->windows[0].available_blocks) {
    return false;
  }
  Compute(tokens);
  return true;
}

uint32_t ExchangedCache::Matched(const Tokens& tokens, const NamespaceKey& name_space) {
  Tokens longer = tokens;
  longer.push_back(0);
  return Require(RunOne<MatchedPrefix>(*client_, MatchPrefix{.name_space = name_space,
                                                             .tokens = longer,
                                                             .extra_token_ids = {},
                                                             .multimodal_items = {}}))
             .matched_tokens /
         kBlockTokens * kBlockTokens;
}

void ExchangedCache::Take(uint32_t blocks) {
  Require(RunOne<AddedSequence>(*client_, AddSequence{.sequence = kTaken,
                                                      .name_space = {.cache_salt = "taken"},
                                                      .tokens = TokensOf(99, blocks * kBlockTokens),
                                                      .reserved_tokens = 0,
                                                      .extra_token_ids = {},
                                                      .multimodal_items = {},
                                                      .retention = {}}));
}

void ExchangedCache::Drop() {
  Require(RunOne<FreedSequence>(*client_, FreeSequence{.sequence = kTaken}));
}

bool ExchangedCache::NothingHeld() const { return HoldsNothing(*manager_); }

}  // namespace pagoda

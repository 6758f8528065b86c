#include "tests/conformance/conformance.h"
#include "manager/sequences/running_sequences.h"
#include "tests/manager/fixtures/host_tiers.h"

#include <algorithm>
#include <numeric>

namespace pagoda {
namespace {

constexpr uint64_t kGarbage = 0xDEAD;

// The extras of a prompt's tokens.
std::vector<TokenExtra> ExtrasOf(const AddSequence& prompt) {
  std::vector<TokenExtra> extras(prompt.tokens.size());
  for (size_t i = 0; i < prompt.extra_token_ids.size(); ++i) {
    extras[i].extra_id = prompt.extra_token_ids[i];
  }
  for (const MultimodalItem& item : prompt.multimodal_items) {
    for (uint32_t i = 0; i < item.token_count; ++i) {
      TokenExtra& extra = extras[item.token_start + i];
      extra.digest = item.digest;
      extra.item_offset = item.item_offset + i;
      extra.in_item = true;
    }
  }
  return extras;
}

}  // namespace

Tokens Range(TokenId first, TokenId last) {
  Tokens tokens(last - first + 1);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

Tokens operator+(Tokens front, const Tokens& back) {
  front.insert(front.end(), back.begin(), back.end());
  return front;
}

void ConformanceTest::Make(Setup setup) {
  CacheSpec spec{.name = "test", .tokens_per_block = setup.tokens_per_block};
  std::vector<uint32_t> primary, lower;
  bool has_lower = false;
  if (!setup.tiers.empty()) setup.windows.resize(1);
  for (const WindowBlocks& blocks : setup.windows) {
    for (const LayerSpec& layer : PoolBytes::LayersOf(blocks.window, setup.tokens_per_block)) {
      spec.layers.push_back(layer);
    }
    primary.push_back(blocks.primary);
    lower.push_back(blocks.lower);
    has_lower |= blocks.lower != 0;
  }
  if (!has_lower) lower.clear();
  std::vector<TierSpec> tiers = std::move(setup.tiers);
  if (tiers.empty()) {
    tiers = HostTiers(std::move(primary), std::move(lower));
    tiers.front().watermark_permille = setup.offload_watermark_permille;
    tiers.back().min_priority = setup.offload_min_priority;
  }
  const CacheLayout layout = *CacheLayout::Create(std::move(spec));
  bytes_ = nullptr;  // Frees its names.
  auto bytes = PoolBytes::Create(layout, tiers);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  bytes_ = *std::move(bytes);
  auto core = BlockManager::Create({.layout = layout,
                                    .tiers = std::move(tiers),
                                    .max_holes = setup.max_holes,
                                    .pin_budget_permille = setup.pin_budget_permille,
                                    .lifecycle_events = setup.lifecycle_events,
                                    .record_events = setup.record_events,
                                    .epoch = Epoch{1}});
  ASSERT_TRUE(core.ok()) << core.status();
  core_ = *std::move(core);
  memory_.emplace(setup.tokens_per_block);
  shadow_ = {};
  lifecycle_events_ = setup.lifecycle_events;
  allocations_ = {};
  events_.clear();
  pending_.clear();
  running_.clear();
  copy_failed_ = false;
  session_ = core_->OpenSession("test", absl::InfiniteDuration(), now_)->ref.id;
  AfterCall();
}

void ConformanceTest::TearDown() {
  if (core_ == nullptr) return;
  AfterCall();
  CompleteAll();
}

void ConformanceTest::AfterCall() {
  for (Order& order : core_->TakeOrders()) {
    EXPECT_LT(order.after[0], order.ticket);
    EXPECT_LT(order.after[1], order.ticket);
    pending_.emplace(order.ticket, order);
  }
  if (copies_ == Copies::kAtOnce) return CompleteAll();
  Check();
}

void ConformanceTest::Complete(Ticket ticket, const absl::Status& status) {
  const auto it = pending_.find(ticket);
  ASSERT_NE(it, pending_.end()) << "no copy has ticket " << ticket.value();
  const Order order = it->second;
  for (const Ticket before : order.after) {
    ASSERT_FALSE(pending_.contains(before)) << "the copy may not start yet";
  }
  if (status.ok()) {
    CarryOut(order);
  } else {
    copy_failed_ = true;
    for (uint64_t& token : memory_->slot(WindowOf(order), order.target)) token = kGarbage;
    bytes_->Spoil(order);
  }
  pending_.erase(it);
  core_->Complete(Lane::kMemory, ticket, status, now_);
  Check();
}

void ConformanceTest::CarryOut(const Order& order) {
  memory_->CarryOut(WindowOf(order), order);
  bytes_->CarryOut(order);
}

std::vector<ShortenedSequence> ConformanceTest::ReadShortened() {
  std::vector<ShortenedSequence> shortened = core_->sequences().Shortened(session_);
  for (const ShortenedSequence& sequence : shortened) {
    Running& running = running_.at(sequence.sequence.value());
    running.computed_tokens = sequence.computed_tokens;
    running.known_losses = sequence.losses;
  }
  return shortened;
}

void ConformanceTest::CompleteAll() {
  while (!pending_.empty()) {
    Complete(pending_.begin()->first);
    if (HasFatalFailure()) return;
  }
  Check();
}

void ConformanceTest::Check() {
  core_->CheckInvariants();
  for (const Event& event : core_->TakeEvents()) {
    ASSERT_EQ(shadow_.Apply(event), absl::OkStatus());
    ASSERT_EQ(allocations_.Apply(event), absl::OkStatus());
    events_.push_back(event);
  }
  for (const WindowStats& window : core_->Stats().windows) {
    if (core_->revision() != Revision{0}) {  // Otherwise no events are recorded.
      ASSERT_EQ(shadow_.Dump(window.window), core_->DumpTree(window.window));
    }
    if (lifecycle_events_ == LifecycleEvents::kAll) {
      ASSERT_EQ(allocations_.Dump(window.window), core_->DumpAllocated(window.window));
    }
    for (const TierOccupancy& tier : window.tiers) ASSERT_EQ(tier.sum(), tier.capacity);
  }
  if (pending_.empty()) CheckKv();
}

// A sequence must read the KV that was computed for its tokens, by any sequence.
void ConformanceTest::CheckKv() {
  for (const auto& [id, running] : running_) {
    const auto described =
        core_->Execute(session_, DescribeSequence{.sequence = SequenceId{id}}, now_);
    ASSERT_TRUE(described.ok()) << described.status();
    const auto& sequence = std::get<DescribedSequence>(*described);
    ASSERT_LE(sequence.computed_tokens, running.computed_tokens);
    if (!copy_failed_) {
      ASSERT_EQ(sequence.computed_tokens, running.computed_tokens);
    }
    const uint64_t next = sequence.computed_tokens;
    for (const BlockTable& table : sequence.tables) {
      const uint64_t begin = next + 1 > table.window.value() ? next + 1 - table.window.value() : 0;
      ForEachToken(table, begin, next, [&](const Place& place, uint64_t token) {
        ASSERT_EQ(memory_->slot(place.window, place.slot)[place.offset], running.kv[token])
            << "sequence " << id << ", token " << token;
        ASSERT_TRUE(bytes_->Holds(place.window, place.slot, place.offset, running.kv[token]))
            << "sequence " << id << ", bytes of token " << token;
      });
    }
  }
}

// The places of the tokens begin to end - 1, by the table.
void ConformanceTest::ForEachToken(
    const BlockTable& table, uint64_t begin, uint64_t end,
    const std::function<void(const Place& place, uint64_t token)>& visit) {
  const TokensPerBlock tokens_per_block(core_->info().tokens_per_block);
  for (uint64_t token = begin; token < end; ++token) {
    const BlockHandle& block = table.blocks.at(tokens_per_block.BlockForToken(token));
    ASSERT_NE(block.id, kNoBlock) << "the place of token " << token << " is needed";
    visit({.window = table.window,
           .slot = {kPrimaryTier, block.slot},
           .offset = tokens_per_block.OffsetInBlock(token)},
          token);
  }
}

void ConformanceTest::WriteKv(uint64_t id, uint32_t begin, uint32_t end) {
  ASSERT_TRUE(pending_.empty()) << "an engine waits for the ready ticket before it writes";
  const Running& running = running_.at(id);
  for (const BlockTable& table : Describe(id).tables) {
    ForEachToken(table, begin, end, [&](const Place& place, uint64_t token) {
      memory_->slot(place.window, place.slot)[place.offset] = running.kv[token];
      bytes_->Write(place.window, place.slot, place.offset, running.kv[token]);
    });
  }
}

void ConformanceTest::Extend(Running& running, const Tokens& tokens) {
  for (const TokenId& token : tokens) {
    const BlockHash before =
        running.kv.empty() ? HashNamespace(running.name_space) : BlockHash{running.kv.back()};
    running.kv.push_back(HashBlock(before, {{&token, 1}, {}}).value());
  }
}

// Each key stands for a block of tokens.
void ConformanceTest::Extend(Running& running, const std::vector<ClientKey>& keys) {
  if (running.kv.empty()) running.last_key = HashNamespace(running.name_space);
  for (const ClientKey& key : keys) {
    running.last_key = HashBlock(running.last_key, key.block_key());
    for (uint32_t i = 0; i < core_->info().tokens_per_block; ++i) {
      running.kv.push_back(running.last_key.value() + i);
    }
  }
}

uint32_t ConformanceTest::Add(AddSequence prompt) {
  Running running{.name_space = prompt.name_space};
  const std::vector<TokenExtra> extras = ExtrasOf(prompt);
  BlockHash hash = HashNamespace(prompt.name_space);
  for (size_t i = 0; i < prompt.tokens.size(); ++i) {
    hash = HashBlock(hash, {{&prompt.tokens[i], 1}, {&extras[i], 1}});
    running.kv.push_back(hash.value());
  }
  Extend(running, prompt.keys);
  const uint64_t id = prompt.sequence.value();
  const auto added = Run(std::move(prompt));
  EXPECT_TRUE(added.ok()) << added.status();
  if (!added.ok()) return 0;
  running.computed_tokens = added->matched_tokens;
  running_[id] = std::move(running);
  Check();
  return added->matched_tokens;
}

void ConformanceTest::Commit(uint64_t id, const Tokens& tokens, uint32_t computed_tokens) {
  Running& running = running_.at(id);
  Extend(running, tokens);
  if (computed_tokens > running.computed_tokens) {
    WriteKv(id, running.computed_tokens, computed_tokens);
    running.computed_tokens = computed_tokens;
  }
  const auto committed = Run(CommitTokens{.sequence = SequenceId{id},
                                          .tokens = tokens,
                                          .computed_tokens = computed_tokens,
                                          .known_losses = running.known_losses});
  ASSERT_TRUE(committed.ok()) << committed.status();
  EXPECT_EQ(committed->token_count, running.kv.size());
}

void ConformanceTest::CommitKeys(uint64_t id, const std::vector<ClientKey>& keys,
                                 uint32_t computed_tokens) {
  Running& running = running_.at(id);
  Extend(running, keys);
  if (computed_tokens > running.computed_tokens) {
    WriteKv(id, running.computed_tokens, computed_tokens);
    running.computed_tokens = computed_tokens;
  }
  const auto committed = Run(CommitTokens{.sequence = SequenceId{id},
                                          .computed_tokens = computed_tokens,
                                          .known_losses = running.known_losses,
                                          .keys = keys});
  ASSERT_TRUE(committed.ok()) << committed.status();
  EXPECT_EQ(committed->token_count, running.kv.size());
}

AppendedTokens ConformanceTest::Append(uint64_t id, const Tokens& tokens,
                                       uint32_t computed_tokens) {
  Running& running = running_.at(id);
  const auto appended = Run(AppendTokens{.sequence = SequenceId{id}, .tokens = tokens});
  EXPECT_TRUE(appended.ok()) << appended.status();
  if (!appended.ok()) return {};
  Extend(running, tokens);
  EXPECT_EQ(appended->token_count, running.kv.size());
  if (computed_tokens != 0) Compute(id, computed_tokens);
  return *appended;
}

AppendedTokens ConformanceTest::ComputeAndAppend(uint64_t id, uint32_t computed_tokens,
                                                 const Tokens& tokens) {
  Running& running = running_.at(id);
  WriteKv(id, running.computed_tokens, computed_tokens);
  running.computed_tokens = computed_tokens;
  Extend(running, tokens);
  const auto appended = Run(AppendTokens{.sequence = SequenceId{id},
                                         .tokens = tokens,
                                         .computed_tokens = computed_tokens,
                                         .known_losses = running.known_losses});
  EXPECT_TRUE(appended.ok()) << appended.status();
  return appended.ok() ? *appended : AppendedTokens{};
}

void ConformanceTest::Free(uint64_t id) {
  running_.erase(id);
  const auto freed = Run(FreeSequence{.sequence = SequenceId{id}});
  ASSERT_TRUE(freed.ok()) << freed.status();
}

void ConformanceTest::FreeAsPeersDo(uint64_t id) {
  const auto& running = running_.at(id);
  const uint32_t computed_tokens = static_cast<uint32_t>(running.kv.size()) - 1;
  if (computed_tokens > running.computed_tokens) Compute(id, computed_tokens);
  Free(id);
}

uint32_t ConformanceTest::Serve(uint64_t id, const Tokens& prompt,
                                const SequenceRetention& retention) {
  const uint32_t matched =
      Add({.sequence = SequenceId{id}, .tokens = prompt, .retention = retention});
  Compute(id, static_cast<uint32_t>(prompt.size()));
  Free(id);
  return matched;
}

void ConformanceTest::Fork(uint64_t id, uint64_t new_id) {
  const auto forked =
      Run(ForkSequence{.sequence = SequenceId{id}, .new_sequence = SequenceId{new_id}});
  ASSERT_TRUE(forked.ok()) << forked.status();
  running_[new_id] = running_.at(id);
  EXPECT_EQ(forked->token_count, running_[new_id].kv.size());
  EXPECT_EQ(forked->computed_tokens, running_[new_id].computed_tokens);
  Check();
}

TruncatedSequence ConformanceTest::Truncate(uint64_t id, uint32_t token_count) {
  Running& running = running_.at(id);
  const Running before = running;
  running.kv.resize(std::min<size_t>(running.kv.size(), token_count));
  running.computed_tokens = std::min(running.computed_tokens, token_count);
  // The first value of a keyed block is its chain's.
  if (running.name_space.keyed && !running.kv.empty()) {
    const size_t last = running.kv.size() - core_->info().tokens_per_block;
    running.last_key = BlockHash{running.kv[last]};
  }
  const auto truncated =
      Run(TruncateSequence{.sequence = SequenceId{id}, .token_count = token_count});
  EXPECT_TRUE(truncated.ok()) << truncated.status();
  if (!truncated.ok()) {
    running = before;
    return {};
  }
  EXPECT_EQ(truncated->token_count, token_count);
  EXPECT_EQ(truncated->computed_tokens, running.computed_tokens);
  return *truncated;
}

uint32_t ConformanceTest::Match(const Tokens& tokens, const NamespaceKey& name_space) {
  const auto matched = Run(MatchPrefix{.name_space = name_space, .tokens = tokens});
  EXPECT_TRUE(matched.ok()) << matched.status();
  return matched.ok() ? matched->matched_tokens : 0;
}

void ConformanceTest::Maintain(uint32_t max_blocks) {
  core_->Maintain(now_, max_blocks);
  AfterCall();
}

TierOccupancy ConformanceTest::InTier(Tier tier, WindowSize window) const {
  for (const WindowStats& stats : core_->Stats().windows) {
    if (stats.window == window) return stats.tiers[tier.value()];
  }
  ADD_FAILURE() << "no window " << WindowName(window);
  return {};
}

uint32_t ConformanceTest::Used(WindowSize window) const {
  const TierOccupancy primary = Primary(window);
  return primary.active + primary.pinned + primary.in_flight;
}

uint32_t ConformanceTest::Available(WindowSize window) const {
  const TierOccupancy primary = Primary(window);
  return primary.free + primary.cached;
}

DescribedSequence ConformanceTest::Describe(uint64_t id) {
  const auto described = Run(DescribeSequence{.sequence = SequenceId{id}});
  EXPECT_TRUE(described.ok()) << described.status();
  return described.ok() ? *described : DescribedSequence{};
}

std::vector<BlockHandle> ConformanceTest::Table(uint64_t id, WindowSize window) {
  for (const BlockTable& table : Describe(id).tables) {
    EXPECT_EQ(table.first_block, 0u);
    if (table.window == window) return table.blocks;
  }
  ADD_FAILURE() << "no window " << WindowName(window);
  return {};
}

std::optional<TreeEntry> ConformanceTest::Cached(const Tokens& prefix,
                                                 const NamespaceKey& name_space,
                                                 WindowSize window) const {
  BlockHash hash = HashNamespace(name_space);
  const BlockKey all{.tokens = prefix};
  for (size_t i = 0; i < prefix.size(); i += core_->info().tokens_per_block) {
    hash = HashBlock(hash, all.Sub(i, core_->info().tokens_per_block));
  }
  for (TreeEntry& entry : core_->DumpTree(window)) {
    if (entry.hash == hash) return std::move(entry);
  }
  return std::nullopt;
}

TreeEntry ConformanceTest::RequireCached(const Tokens& prefix, const NamespaceKey& name_space,
                                         WindowSize window) const {
  std::optional<TreeEntry> entry = Cached(prefix, name_space, window);
  EXPECT_TRUE(entry.has_value()) << "a prefix of " << prefix.size() << " tokens is not cached";
  return std::move(entry).value_or(TreeEntry{});
}

}  // namespace pagoda

#include "manager/block_manager.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "manager/eviction_policy.h"
#include "pools/check.h"
#include "pools/error.h"
#include "pools/sizing.h"

namespace pagoda {
namespace {

absl::Status CheckOptions(const BlockManager::Options& options) {
  const size_t windows = options.layout.windows().size();
  PAGODA_CHECK(options.primary_blocks.size() == windows, "one block count a window");
  PAGODA_CHECK(options.secondary_blocks.empty() || options.secondary_blocks.size() == windows,
               "one block count a window, or none");
  for (size_t i = 0; i < windows; ++i) {
    const uint32_t primary = options.primary_blocks[i];
    const uint32_t secondary = options.secondary_blocks.empty() ? 0 : options.secondary_blocks[i];
    if (primary == 0 || primary > kMaxBlocks || secondary > kMaxBlocks) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("a window of ", primary, " primary and ", secondary,
                                    " secondary blocks; 1 to ", kMaxBlocks, " and up to ",
                                    kMaxBlocks, " are served"));
    }
  }
  if (options.max_holes > kMaxBlocks || options.offload_min_priority.value() > kMaxPriority ||
      options.offload_watermark_permille > 1000 || options.pin_budget_permille > 1000) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("max_holes is at most ", kMaxBlocks, ", a priority at most ",
                                  kMaxPriority, ", a share at most 1000 thousandths"));
  }
  return absl::OkStatus();
}

CacheInfo MakeInfo(const BlockManager::Options& options) {
  const CacheSpec& spec = options.layout.spec();
  CacheInfo info{.name = spec.name,
                 .model_fingerprint = spec.model_fingerprint,
                 .rank = spec.rank,
                 .tokens_per_block = spec.tokens_per_block,
                 .windows = {}};
  for (size_t i = 0; i < options.layout.windows().size(); ++i) {
    info.windows.push_back(
        {.window = options.layout.windows()[i].window,
         .primary_blocks = options.primary_blocks[i],
         .secondary_blocks = options.secondary_blocks.empty() ? 0 : options.secondary_blocks[i]});
  }
  return info;
}

std::vector<WindowSize> WindowSizes(const CacheInfo& info) {
  std::vector<WindowSize> sizes;
  for (const CacheInfo::Window& window : info.windows) sizes.push_back(window.window);
  return sizes;
}

std::string_view PolicyName(const BlockManager::Options& options) {
  return options.eviction_policy.empty() ? EvictionPolicyNames().front()
                                         : std::string_view(options.eviction_policy);
}

uint32_t Permille(uint64_t blocks, uint32_t permille) {
  return static_cast<uint32_t>(blocks * permille / 1000);
}

// Of one window.
uint32_t PinBudget(const BlockManager::Options& options, const CacheInfo::Window& window) {
  return Permille(uint64_t{window.primary_blocks} + window.secondary_blocks,
                  options.pin_budget_permille);
}

uint64_t PinBudget(const BlockManager::Options& options) {
  uint64_t blocks = 0;
  for (const CacheInfo::Window& window : MakeInfo(options).windows) {
    blocks += PinBudget(options, window);
  }
  return blocks;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BlockManager>> BlockManager::Create(Options options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  if (absl::Status status = MakeEvictionPolicies(PolicyName(options), 1, 1).status();
      !status.ok()) {
    return status;
  }
  absl::StatusOr<TenantTable> tenants = TenantTable::Create(options.tenants, options.commons_share);
  if (!tenants.ok()) return tenants.status();
  return absl::WrapUnique(new BlockManager(std::move(options), *std::move(tenants)));
}

BlockManager::BlockManager(Options options, TenantTable tenants)
    : options_(std::move(options)),
      info_(MakeInfo(options_)),
      tenants_(std::move(tenants)),
      tokens_per_block_(info_.tokens_per_block),
      recorder_(options_.record_events),
      copies_(WindowSizes(info_)),
      sequence_accounts_(&tenants_, options_.sequence_limits),
      sessions_(options_.max_sessions, tenants_.size()),
      pins_(&tenants_, PinBudget(options_)) {
  uint32_t most_blocks = 0;
  for (const CacheInfo::Window& window : info_.windows) {
    most_blocks = std::max(most_blocks, window.primary_blocks + window.secondary_blocks);
  }
  BeginOperation(options_.start_time);
  const CoreServices services{.recorder = &recorder_,
                              .copies = &copies_,
                              .slot_changes = options_.journal_slots ? &slot_changes_ : nullptr,
                              .pins = this,
                              .deadlines = &deadlines_};
  for (const CacheInfo::Window& window : info_.windows) {
    const WindowBlockManager::Options window_options{
        .window = window.window,
        .index = static_cast<uint32_t>(windows_.size()),
        .tokens_per_block = tokens_per_block_,
        .blocks = {window.primary_blocks, window.secondary_blocks},
        .max_holes = options_.max_holes == 0 ? most_blocks : options_.max_holes,
        .pin_budget_blocks = PinBudget(options_, window),
        .offload_min_priority = options_.offload_min_priority,
        .lives_sample = options_.lives_sample,
        .tenants = &tenants_};
    const uint32_t num_ids = WindowBlockManager::NumIds(window_options);
    WindowBlockManager::Policies policies;
    for (size_t t = 0; t < kNumTiers; ++t) {
      if (window_options.blocks[t] == 0) continue;
      policies[t] = *MakeEvictionPolicies(PolicyName(options_), num_ids, tenants_.size());
    }
    windows_.push_back(
        std::make_unique<WindowBlockManager>(window_options, std::move(policies), services));
    any_slides_ = any_slides_ || windows_.back()->sliding();
    recorder_.PoolsCreated(window.window, {window.primary_blocks, window.secondary_blocks});
  }
}

OperationScope BlockManager::BeginOperation(absl::Time now, Session* draining) {
  recorder_.BeginOperation(now);
  OperationScope op{.now = now, .draining = draining};
  if (deadlines_.next <= now) ApplyDeadlines(op);
  return op;
}

void BlockManager::ApplyDeadlines(OperationScope& op) {
  deadlines_.next = absl::InfiniteFuture();
  for (const auto& window : windows_) window->Expire(op);
  ExpirePins(op);
}

// Without a step, what still drains may lie below what the batch lets go: it must not outlive that.
Session* BlockManager::DrainingOf(SessionId id) {
  Session* const session = sessions_.Find(id);
  const bool drains = session != nullptr && (session->batch_step != 0 || !session->drains.empty());
  return drains ? session : nullptr;
}

Ticket BlockManager::EndOperation(OperationScope& op) {
  if (Session* session = op.draining; session != nullptr) {
    if (!session->ending) CompactDrains(op, *session);
    session->drains_charge.ResizeAnyway(session->drains.size() * sizeof(Drain));
  }
  CheckAccounting();
  return op.ready;
}

// --- Raw blocks ---

absl::StatusOr<Ticket> BlockManager::AllocateBlocks(SessionId session, WindowSize window,
                                                    absl::Span<BlockHandle> out, absl::Time now) {
  OperationScope op = BeginOperation(session, now);
  absl::StatusOr<WindowBlockManager*> manager = RequireWindow(window);
  if (!manager.ok()) return manager.status();
  if (out.empty() || out.size() > (*manager)->capacity()) {
    return MakeError(Reason::kInvalidCount, absl::StrCat(out.size(), " blocks asked for; 1 to ",
                                                         (*manager)->capacity(), " can be had"));
  }
  op.tenant = TenantOf(session);
  if (const uint32_t quota = (*manager)->Quota(op.tenant); out.size() > quota) {
    return MakeError(Reason::kInvalidCount,
                     absl::StrCat(out.size(), " blocks asked for; the tenant's quota is ", quota));
  }
  if (absl::Status status =
          CheckNeeds(op.tenant, (*manager)->index(), (*manager)->NeedsOf(out.size(), op.tenant));
      !status.ok()) {
    return status;
  }
  (*manager)->TakeRaw(op, session, out);
  RequireSession(session).raw_blocks += out.size();
  if (options_.lifecycle_events == LifecycleEvents::kRaw) {
    std::vector<BlockId> ids;
    ids.reserve(out.size());
    for (const BlockHandle& handle : out) ids.push_back(handle.id);
    recorder_.BlocksCreated(window, ids, op.tenant);
  }
  return EndOperation(op);
}

absl::Status BlockManager::FreeBlocks(SessionId session, WindowSize window,
                                      absl::Span<const BlockRef> blocks, absl::Time now) {
  OperationScope op = BeginOperation(session, now);
  absl::StatusOr<WindowBlockManager*> manager = RequireWindow(window);
  if (!manager.ok()) return manager.status();
  if (blocks.empty()) return MakeError(Reason::kInvalidCount, "no blocks to free");
  op.tenant = TenantOf(session);
  if (absl::Status status = (*manager)->CheckRaw(op.tenant, session, blocks); !status.ok())
    return status;

  FreeRaw(op, RequireSession(session), **manager, blocks);
  EndOperation(op);
  return absl::OkStatus();
}

void BlockManager::FreeRaw(OperationScope& op, Session& session, WindowBlockManager& window,
                           absl::Span<const BlockRef> blocks) {
  window.FreeRaw(op, blocks);
  session.raw_blocks -= blocks.size();
  if (options_.lifecycle_events != LifecycleEvents::kRaw) return;
  std::vector<BlockId> ids;
  ids.reserve(blocks.size());
  for (const BlockRef& ref : blocks) ids.push_back(ref.id);
  recorder_.BlocksReleased(window.window(), ids, op.tenant);
}

absl::Status BlockManager::CheckWritable(SessionId session, WindowSize window,
                                         const BlockRef& block) const {
  const absl::StatusOr<WindowBlockManager*> manager = RequireWindow(window);
  if (!manager.ok()) return manager.status();
  std::vector<const Sequence*> sequences;
  for (const SequenceId sequence : sessions_.Get(session).sequences) {
    sequences.push_back(sequences_.at({session, sequence}).get());
  }
  return (*manager)->CheckWritable(session, sequences, block);
}

// --- Copies and time ---

void BlockManager::CompleteCopy(Ticket ticket, const absl::Status& status, absl::Time now) {
  OperationScope op = BeginOperation(now);
  const CopyTracker::Completion completion = copies_.Complete(ticket, status);
  if (completion.lost.has_value()) {
    const CopyTracker::Lost& lost = *completion.lost;
    WindowBlockManager& window = *windows_[lost.window];
    if (window.Owns(lost.block, lost.target)) {
      Shorten(lost);
      if (window.in_tree(lost.block.id)) window.Lose(op, lost.block.id);
    }
  }
  EndOperation(op);
}

uint32_t BlockManager::Maintain(absl::Time now, uint32_t max_blocks) {
  OperationScope op = BeginOperation(now);
  uint32_t moved = 0;
  if (options_.offload_watermark_permille != 0) {
    for (const auto& window : windows_) {
      moved += window->OffloadAhead(
          op, Permille(window->capacity(), options_.offload_watermark_permille),
          max_blocks - moved);
    }
  }
  EndOperation(op);
  return moved;
}

// --- Operators ---

ManagerStats BlockManager::Stats() const {
  ManagerStats stats;
  for (const auto& window : windows_) stats.windows.push_back(window->Stats());
  stats.sessions = sessions_.size();
  stats.sequences = sequences_.size();
  stats.pins = pins_.size();
  stats.copies_in_flight = copies_.in_flight();
  stats.quarantines = quarantines_.size();
  stats.quarantined_blocks = quarantined_blocks_;
  stats.recovered_blocks = recovered_blocks_;
  stats.session_counters = session_counters_;
  stats.operations = operations_;
  return stats;
}

uint64_t BlockManager::HeldBlocks() const {
  uint64_t held = 0;
  for (const auto& window : windows_) held += window->held_blocks();
  return held;
}

// --- Tenants ---

TenantId BlockManager::TenantOf(SessionId session) const {
  return tenants_.any() ? sessions_.Get(session).tenant : kCommons;
}

std::vector<TenantUsage> BlockManager::TenantUses() const {
  std::vector<TenantUsage> list(tenants_.size());
  for (uint16_t i = 0; i < tenants_.size(); ++i) {
    const TenantId tenant{i};
    list[i].tenant = tenant;
    list[i].sequences = sequence_accounts_.sequences(tenant);
    list[i].max_sequences = sequence_accounts_.most_sequences(tenant);
    list[i].sequence_bytes = sequence_accounts_.bytes(tenant);
    list[i].max_sequence_bytes = sequence_accounts_.most_bytes(tenant);
    for (const auto& window : windows_) window->AddUses(TenantId{i}, &list[i].uses);
  }
  for (const SessionId id : sessions_.Ids()) ++list[sessions_.Get(id).tenant.value()].sessions;
  return list;
}

// --- A warm restart ---

absl::StatusOr<uint64_t> BlockManager::Restore(absl::Span<const RecoveredWindow> recovered,
                                               absl::Time now) {
  std::vector<WindowBlockManager*> targets;
  for (const RecoveredWindow& window : recovered) {
    const absl::StatusOr<WindowBlockManager*> target = RequireWindow(window.window);
    if (!target.ok()) return target.status();
    if (std::find(targets.begin(), targets.end(), *target) != targets.end()) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("window ", WindowName(window.window), " is there twice"));
    }
    if (absl::Status status = (*target)->CheckRecovered(window.blocks); !status.ok()) {
      return status;
    }
    targets.push_back(*target);
  }
  OperationScope op = BeginOperation(now);
  for (size_t i = 0; i < targets.size(); ++i) {
    targets[i]->Restore(op, recovered[i].blocks);
    for (const RecoveredBlock& block : recovered[i].blocks) {
      recovered_blocks_ += block.slot.slot == kNoSlot ? 0 : 1;
    }
  }
  EndOperation(op);
  return recovered_blocks_;
}

// --- Look-ups and checks ---

absl::StatusOr<WindowBlockManager*> BlockManager::RequireWindow(WindowSize window) const {
  for (const auto& manager : windows_) {
    if (manager->window() == window) return manager.get();
  }
  return MakeError(Reason::kUnknownWindow,
                   absl::StrCat("the cache has no window of ", WindowName(window), " tokens"));
}

Session& BlockManager::RequireSession(SessionId session) {
  Session* found = sessions_.Find(session);
  PAGODA_CHECK(found != nullptr, "operations run for living sessions");
  return *found;
}

void BlockManager::CheckAccounting() const {
  for (const auto& window : windows_) window->CheckAccounting();
}

// What tenants are charged for sequences and drains is what these cost.
void BlockManager::CheckSequenceAccounts() const {
  std::vector<uint64_t> sequences(tenants_.size()), bytes(tenants_.size());
  std::set<const void*> shared;
  for (const auto& [key, sequence] : sequences_) {
    const size_t tenant = sequence->tenant.value();
    ++sequences[tenant];
    bytes[tenant] += sequence->charge.bytes();
    const uint64_t least = SequenceBytes() + TableBytes(TableSize(sequence->room_tokens));
    PAGODA_CHECK(
        sequence->charge.bytes() >= least && sequence->charge.bytes() <= least + kMaxCacheSaltBytes,
        "a sequence is charged for itself and its tables");
    const auto add = [&](const auto& part) {
      PAGODA_CHECK(part->charge.bytes() > 0, "what forks share is charged once");
      if (shared.insert(part.get()).second) bytes[tenant] += part->charge.bytes();
    };
    if (sequence->named != nullptr) add(sequence->named);
    if (sequence->wishes != nullptr) add(sequence->wishes);
    sequence->extras.VisitShared(add);
  }
  std::map<SessionId, size_t> drains;
  for (const Ending& ending : endings_) {
    if (ending.session.has_value()) drains[*ending.session] += ending.drains.size();
  }
  for (const SessionId id : sessions_.Ids()) {
    const Session& session = sessions_.Get(id);
    bytes[session.tenant.value()] += session.drains_charge.bytes();
    PAGODA_CHECK(
        session.drains_charge.bytes() == (session.drains.size() + drains[id]) * sizeof(Drain),
        "a session is charged for what drains");
  }
  for (const auto& [id, quarantine] : quarantines_) {
    bytes[quarantine.tenant.value()] += quarantine.drains_charge.bytes();
  }
  for (const Ending& ending : endings_) {
    bytes[ending.drains_charge.tenant().value()] += ending.drains_charge.bytes();
  }
  for (uint16_t i = 0; i < tenants_.size(); ++i) {
    PAGODA_CHECK(sequence_accounts_.sequences(TenantId{i}) == sequences[i] &&
                     sequence_accounts_.bytes(TenantId{i}) == bytes[i],
                 "tenants are charged for what their sequences and drains cost");
  }
}

void BlockManager::CheckInvariants() const {
  CheckSequenceAccounts();
  for (size_t w = 0; w < windows_.size(); ++w) {
    const WindowBlockManager& window = *windows_[w];
    WindowBlockManager::Holders holders(window.num_ids());
    for (const auto& [pin, entry] : pins_) {
      for (const BlockId id : entry.blocks[w]) holders[id.value()].push_back(entry.holder);
    }
    for (const auto& [key, sequence] : sequences_) {
      PAGODA_CHECK(
          sequence->computed_tokens <= std::min(sequence->token_count, sequence->room_tokens),
          "rule 7: computed tokens were named and have a place");
      window.CheckSequence(*sequence);
      const SequenceBlocks& blocks = sequence->windows[w];
      for (const BlockHandle& handle : blocks.table) {
        if (handle.id != kNoBlock) holders[handle.id.value()].push_back(sequence->tenant);
      }
      for (const BlockId id : blocks.canonical) {
        if (id != kNoBlock) holders[id.value()].push_back(sequence->tenant);
      }
    }
    for (const SessionId id : sessions_.Ids()) {
      const Session& session = sessions_.Get(id);
      for (const Drain& drain : session.drains) {
        if (drain.window == w) holders[drain.block.value()].push_back(drain.tenant);
      }
      if (session.raw_blocks == 0) continue;
      BlockId first{0};
      for (const BlockRef& raw :
           window.NextRawBlocks(id, &first, window.num_ids(), window.num_ids())) {
        holders[raw.id.value()].push_back(session.tenant);
      }
    }
    for (const Ending& ending : endings_) {
      for (const Drain& drain : ending.drains) {
        if (drain.window == w) holders[drain.block.value()].push_back(drain.tenant);
      }
    }
    for (const auto& [id, quarantine] : quarantines_) {
      for (const Drain& drain : quarantine.drains) {
        if (drain.window == w) holders[drain.block.value()].push_back(drain.tenant);
      }
    }
    window.CheckInvariants(holders);
  }
  uint64_t quarantined = 0;
  for (const auto& [id, quarantine] : quarantines_) {
    std::set<std::pair<uint32_t, BlockId>> blocks;
    for (const Drain& drain : quarantine.drains) blocks.emplace(drain.window, drain.block);
    PAGODA_CHECK(blocks.size() == quarantine.blocks, "a quarantine counts each block once");
    quarantined += blocks.size();
  }
  PAGODA_CHECK(quarantined == quarantined_blocks_, "the quarantined blocks are counted");
}

SnapshotPiece BlockManager::ReadSnapshot(const SnapshotPosition& from, size_t max_blocks,
                                         size_t max_tokens, absl::Time now) const {
  SnapshotPiece piece{.revision = recorder_.last(), .end = from};
  const bool with_raw = options_.lifecycle_events == LifecycleEvents::kRaw;
  auto manager = std::find_if(windows_.begin(), windows_.end(),
                              [&](const auto& window) { return window->window() >= from.window; });
  PAGODA_CHECK(!from.done && manager != windows_.end(), "a snapshot that is not done goes on");
  const BlockId begin = (*manager)->window() == from.window ? from.next : BlockId{0};
  const BlockId end =
      (*manager)->ReadSnapshot(begin, max_blocks, max_tokens, with_raw, now, &piece.events);
  if (end.value() < (*manager)->num_ids()) {
    piece.end = {.window = (*manager)->window(), .next = end};
  } else if (++manager != windows_.end()) {
    piece.end = {.window = (*manager)->window(), .next = BlockId{0}};
  } else {
    piece.end.done = true;
  }
  return piece;
}

std::vector<TreeEntry> BlockManager::DumpTree(WindowSize window) const {
  for (const auto& manager : windows_) {
    if (manager->window() == window) return manager->DumpTree();
  }
  return {};
}

}  // namespace pagoda

// What must hold after every call.
#include <algorithm>
#include <utility>

#include "manager/cache_lists.h"
#include "manager/sequences/cached_prefixes.h"
#include "manager/sequences/running_sequences.h"
#include "manager/tree/sequence.h"
#include "tests/sim/disk_steps.h"
#include "tests/sim/world.h"

namespace pagoda::sim {
namespace {

// A block that a tier refused for another one does not lie there.
void CheckRefusals(World& world) {
  for (const Witness::Refusal& refusal : world.witness.refusals()) {
    const Node& node = world.shadows[refusal.window].node(refusal.refused.value());
    SIM_CHECK(!node.cached() || node.tier != refusal.tier, "block ", refusal.refused.value(),
              " got a place in the ", DefaultTierName(refusal.tier),
              " tier, which kept another one for it");
    world.coverage.Add(Met::kKeptOut);
  }
  world.witness.Forget();
}

// The bytes of a cached block, and of its farther copies, are those of its content, unless they are
// on their way.
void CheckNodes(World& world, uint32_t window) {
  const Shadow& shadow = world.shadows[window];
  Ledger& ledger = world.ledgers[window];
  for (uint32_t id = 0; id < shadow.num_ids(); ++id) {
    const Node& node = shadow.node(id);
    if (!node.cached()) continue;
    const BlockFacts& facts = ledger[id];
    SIM_CHECK(facts.placed && facts.place.tier == node.tier && ledger.owner(facts.place) == id,
              "block ", id, " of window ", WindowName(world.config.windows[window].size),
              " does not own the slot in which it must lie");
    if (world.full(window) && node.parent != kNone) {
      const Node& parent = shadow.node(node.parent);
      SIM_CHECK(parent.tier <= node.tier, "rule 13: block ", id, " is nearer than its parent");
      SIM_CHECK(facts.refs == 0 || ledger[node.parent].refs > 0, "rule 13: block ", id,
                " is held, its parent is not");
    }
    for (const Tier tier : kTiers) {
      const SlotRef slot{tier, facts.copies[tier.value()]};
      if (slot.slot == kNoSlot) continue;
      SIM_CHECK(tier == node.tier || node.lower.contains(tier), "block ", id,
                " has a copy that no event tells of");
      if (!world.config.IsOnDisk(tier) && world.memory.Arriving(window, slot)) continue;
      SIM_CHECK(std::equal(node.values.begin(), node.values.begin() + node.count,
                           world.values(window, slot)),
                "rule 7: block ", id, " of window ", WindowName(world.config.windows[window].size),
                " in slot ", slot.slot.value(), " of the ", DefaultTierName(tier),
                " tier does not hold the bytes of its content");
    }
  }
}

void CheckCapacity(World& world) {
  for (const SimSession& session : world.sessions) {
    if (!session.open) continue;
    const absl::StatusOr<CapacityAnswer> answer =
        world.core->prefixes().QueryCapacity(session.ref.id, {.tokens = {0}}, {});
    SIM_CHECK(answer.ok() && answer->windows.size() == world.num_windows(), "QueryCapacity fails");
    for (uint32_t w = 0; w < world.num_windows(); ++w) {
      const uint32_t counted = world.available(w, session.tenant);
      SIM_CHECK(answer->windows[w].available_blocks == counted, "window ",
                WindowName(world.config.windows[w].size), " has ",
                answer->windows[w].available_blocks, " available blocks for tenant ",
                session.tenant.value(), " by the core, ", counted, " by its holders");
    }
    if (world.config.tenants.empty()) return;  // The same for all.
  }
}

// Rule 10: a table in use is the one that its client was told, and its bytes are those that its
// client wrote.
void CheckTables(World& world, const SimSequence& sequence, const Sequence& told) {
  const bool ready = world.Ready(sequence.ready);
  for (uint32_t w = 0; w < world.num_windows(); ++w) {
    const SimTable& table = sequence.tables[w];
    SIM_CHECK(table.blocks.size() == world.BlocksFor(sequence.reserved), "a table of ",
              table.blocks.size(), " blocks for reserved tokens: ", sequence.reserved);
    SIM_CHECK(table.blocks == told.windows[w].table, "rule 10: the table of sequence ",
              sequence.id.value(), " in window ", WindowName(world.config.windows[w].size),
              " changed behind its user");
    for (uint32_t i = 0; i < table.blocks.size(); ++i) {
      const BlockHandle& handle = table.blocks[i];
      if (handle.id == kNoBlock) continue;
      const BlockFacts& facts = world.ledgers[w][handle.id];
      const SlotRef slot{kPrimaryTier, handle.slot};
      const uint32_t owner = world.ledgers[w].owner(slot);
      SIM_CHECK(facts.placed && facts.place == slot &&
                    (owner == handle.id.value() || world.ledgers[w][owner].refs > 0),
                "rule 10: block ", handle.id.value(), " of a running sequence has moved");
      const uint32_t begin = i * world.tokens_per_block();
      if (!ready || begin >= sequence.computed) continue;
      const uint32_t count = std::min(world.tokens_per_block(), sequence.computed - begin);
      SIM_CHECK(std::equal(sequence.values.begin() + begin, sequence.values.begin() + begin + count,
                           world.memory.slot(w, slot)),
                "entry ", i, " of sequence ", sequence.id.value(), " in window ",
                WindowName(world.config.windows[w].size), " does not hold what was computed");
    }
  }
}

void CheckSequences(World& world) {
  for (const SimSession& session : world.sessions) {
    if (!session.in_table()) continue;
    for (const SimSequence& sequence : session.sequences) {
      const absl::StatusOr<const Sequence*> told =
          world.core->sequences().FindSequence(session.ref.id, sequence.id);
      SIM_CHECK(told.ok() == sequence.running, "sequence ", sequence.id.value(), " of session ",
                session.ref.id.value(), sequence.running ? " is gone" : " runs");
      if (!sequence.running) continue;
      SIM_CHECK((*told)->token_count == sequence.tokens() &&
                    (*told)->computed_tokens == sequence.computed &&
                    (*told)->reserved_tokens == sequence.reserved,
                "sequence ", sequence.id.value(), " has ", (*told)->token_count, " tokens, ",
                (*told)->computed_tokens, " computed, reserved ", (*told)->reserved_tokens,
                "; its client ", sequence.tokens(), ", ", sequence.computed, ", ",
                sequence.reserved);
      CheckTables(world, sequence, **told);
    }
  }
}

void CheckRaw(World& world) {
  for (const SimSession& session : world.sessions) {
    if (!session.in_table()) continue;
    for (const SimRaw& raw : session.raw) {
      if (!raw.written) continue;
      const Value* values = world.memory.slot(raw.window, {kPrimaryTier, raw.handle.slot});
      for (uint32_t i = 0; i < world.tokens_per_block(); ++i) {
        SIM_CHECK(values[i] == raw.tag + i, "raw block ", raw.handle.id.value(),
                  " does not hold what its owner wrote");
      }
    }
  }
}

// Rule 11: bytes that kernels can still read do not change.
void CheckDeferred(World& world) {
  for (const SimDeferredRelease& release : world.deferred) {
    if (release.count == 0) continue;
    SIM_CHECK(std::equal(release.values.begin(), release.values.begin() + release.count,
                         world.memory.slot(release.block.window, release.slot)),
              "rule 11: block ", release.block.id.value(),
              " was overwritten before its deferred release ended");
  }
}

}  // namespace

void World::CountHolders() {
  for (Ledger& ledger : ledgers) ledger.BeginCount();
  for (Accountant& accountant : accountants) accountant.BeginCount();
  const auto hold = [this](uint32_t w, BlockId id, TenantId tenant, Ledger::Holder holder) {
    ledgers[w].Hold(id, holder);
    accountants[w].Hold(id, tenant);
  };
  for (const SimSession& session : sessions) {
    if (!session.in_table()) continue;
    for (const SimSequence& sequence : session.sequences) {
      if (!sequence.running) continue;
      for (uint32_t w = 0; w < num_windows(); ++w) {
        const SimTable& table = sequence.tables[w];
        for (const BlockHandle& handle : table.blocks) {
          if (handle.id == kNoBlock) continue;
          hold(w, handle.id, sequence.tenant, Ledger::Holder::kUser);
        }
        for (const BlockId id : table.canonical) {
          if (id != kNoBlock) hold(w, id, sequence.tenant, Ledger::Holder::kUser);
        }
      }
    }
    for (const SimRaw& raw : session.raw) {
      hold(raw.window, raw.handle.id, session.tenant, Ledger::Holder::kUser);
    }
  }
  for (const SimPin& pin : pins) {
    for (const HeldBlock& block : pin.blocks) {
      SIM_CHECK(shadows[block.window].node(block.id.value()).cached(), "pin ", pin.id.value(),
                " holds block ", block.id.value(), ", which has left the tree");
      hold(block.window, block.id, pin.tenant, Ledger::Holder::kPin);
    }
  }
  for (const SimDeferredRelease& release : deferred) {
    hold(release.block.window, release.block.id, release.tenant, Ledger::Holder::kDefer);
  }
  for (const DiskOrders::Job& job : on_order.jobs()) {
    for (const DiskOrders::Fetch& fetch : job.fetches) {
      ledgers[job.window].Reserve({config.above_disk(), fetch.memory});
    }
  }
  for (uint32_t w = 0; w < num_windows(); ++w) {
    ledgers[w].EndCount(shadows[w]);
    accountants[w].EndCount(ledgers[w], shadows[w], coverage);
    if (!config.has_disk_in(w)) continue;
    std::vector<bool> owned(config.slots_in(w, config.disk()));
    for (uint32_t s = 0; s < owned.size(); ++s) {
      owned[s] = ledgers[w].owner({config.disk(), SlotIndex{s}}) != kNone;
    }
    ledgers[w].SetDiskInFlight(on_order.InFlight(w, owned));
  }
}

bool World::MayHold(uint32_t window, uint32_t id, TenantId tenant) {
  if (tenant == kDefaultTenant || !config.shares(tenant) ||
      config.quota(tenant, kPrimaryTier) == kNoQuota) {
    return true;
  }
  CountHolders();
  const Accountant& accountant = accountants[window];
  return accountant.Holds(id, tenant) || accountant.Left(tenant) > 0;
}

void World::Check() {
  core->CheckInvariants();
  CountHolders();
  CheckVictims();
  ManagerStats stats = core->Stats();
  uint64_t open = 0, running = 0;
  for (const SimSession& session : sessions) {
    open += session.in_table() ? 1 : 0;
    for (const SimSequence& sequence : session.sequences) running += sequence.running ? 1 : 0;
  }
  SIM_CHECK(stats.sessions == open && stats.sequences == running && stats.pins == pins.size() &&
                stats.copies_in_flight == memory.pending(),
            "Stats() counts ", stats.sessions, " sessions, ", stats.sequences, " sequences, ",
            stats.pins, " pins, ", stats.copies_in_flight, " copies; there are ", open, ", ",
            running, ", ", pins.size(), ", ", memory.pending());
  SIM_CHECK(core->completed_ticket() == memory.completed() && core->last_ticket() == memory.last(),
            "copies up to ", core->completed_ticket().value(), " of ", core->last_ticket().value(),
            " have ended by the core, up to ", memory.completed().value(), " by the copies");
  for (const Lane lane : {Lane::kFetch, Lane::kBackup}) {
    SIM_CHECK(core->completed_ticket(lane) == on_order.completed(lane) &&
                  core->last_ticket(lane) == on_order.last(lane),
              lane == Lane::kFetch ? "fetches up to " : "backups up to ",
              core->completed_ticket(lane).value(), " of ", core->last_ticket(lane).value(),
              " have ended by the core, up to ", on_order.completed(lane).value(), " of ",
              on_order.last(lane).value(), " by what was reported");
  }
  for (uint32_t w = 0; w < num_windows(); ++w) {
    const std::vector<TreeEntry> tree = core->DumpTree(config.windows[w].size);
    shadows[w].Compare(tree);
    hash_reader_.Compare(config, w, shadows[w]);
    if (late_joiner_.hashes() != nullptr) late_joiner_.hashes()->Compare(config, w, shadows[w]);
    if (keep_events_) {
      SIM_CHECK(shadow_tree_.Dump(config.windows[w].size) == tree, "law: the ShadowTree differs");
    }
    const bool resetting = core->resetting();
    if (config.has_disk_in(w)) CheckDisk(*this, w);
    if (config.has_disk_in(w)) on_order.CheckStats(w, stats.windows[w].disk);
    ledgers[w].CheckStats(stats.windows[w], memory, shadows[w],
                          resetting ? Ledger::Reset::kGoesOn : Ledger::Reset::kOver);
    SIM_CHECK(stats.windows[w].pinned_blocks == ledgers[w].pinned_blocks(), "Stats() counts ",
              stats.windows[w].pinned_blocks, " pinned blocks instead of ",
              ledgers[w].pinned_blocks());
    SIM_CHECK(stats.windows[w].holes == shadows[w].holes() ||
                  (resetting && stats.windows[w].holes > shadows[w].holes()),
              "Stats() counts ", stats.windows[w].holes, " holes instead of ", shadows[w].holes());
    CheckRetention(w);
    CheckNodes(*this, w);
    CheckAllocations(w);
    journal.Check(w, shadows[w], ledgers[w], resetting);
  }
  // The tenant is charged for blocks that a reset has cut off until the reset releases them.
  if (!config.tenants.empty() && !core->resetting()) {
    const std::vector<TenantUsage> uses = core->lists().TenantUses();
    for (const Accountant& accountant : accountants) accountant.Check(uses);
  }
  CheckCapacity(*this);
  CheckSequences(*this);
  CheckRaw(*this);
  CheckDeferred(*this);
  stats_ = std::move(stats);
  SIM_CHECK(stored.empty(), "block ", stored.front().id.value(), " is stored by nobody");
  time_applied_ = pins_expired_ = false;
}

// The events alone say which blocks are taken and not in the tree.
void World::CheckAllocations(uint32_t window) {
  if (config.lifecycle != LifecycleEvents::kAll) return;
  const WindowSize size = config.windows[window].size;
  SIM_CHECK(allocations_.Dump(size) == core->DumpAllocated(size), "law: other blocks of window ",
            WindowName(size), " are taken than the events say");
}

// Rule 13: a candidate that stayed has no lower priority than a block that left.
void World::CheckVictims() {
  for (const Victims& victims : victims_) {
    if (victims.gone.empty()) continue;
    const std::optional<Victims::Candidate> stayed = LowestThatStayed(victims);
    for (const Victims::Gone& gone : victims.gone) {
      SIM_CHECK(!stayed.has_value() || gone.priority <= stayed->priority, "a block of priority ",
                gone.priority, " of the ", DefaultTierName(victims.tier),
                " tier went before block ", stayed->id, " of priority ", stayed->priority);
      // Blocks that a reset has cut off move without an event.
      if (!core->resetting()) CheckPassed(victims, gone);
    }
  }
  victims_.clear();
  CheckRefusals(*this);
}

bool World::IsCandidate(uint32_t window, uint32_t id) {
  const Node& node = shadows[window].node(id);
  if (!node.cached() || ledgers[window][id].refs > 0) return false;
  return !full(window) || !shadows[window].HasNearChildren(id, node.tier);
}

// The candidate with the lowest priority that stayed, and could have left at any time of the call.
// If its priority changed, the higher one counts.
std::optional<Victims::Candidate> World::LowestThatStayed(const Victims& victims) {
  std::optional<Victims::Candidate> lowest;
  for (const Victims::Candidate& candidate : victims.candidates) {
    const Node& node = shadows[victims.window].node(candidate.id);
    const bool stays = config.IsOnDisk(victims.tier)
                           ? IsDiskCandidate(victims.window, candidate.id)
                           : IsCandidate(victims.window, candidate.id) && node.tier == victims.tier;
    if (!stays) continue;
    const Priority priority = std::max(candidate.priority, node.priority);
    if (lowest.has_value() && lowest->priority <= priority) continue;
    lowest = {candidate.id, priority};
  }
  return lowest;
}

// Rule 14: a tier takes a block that it admits if it has a free slot or a block of no higher
// priority. It takes a block with a child there in any case. So a block that fell past a tier, to a
// copy that it had below or to another place, or was dropped, is one that the tier could not take.
void World::CheckPassed(const Victims& from, const Victims::Gone& gone) {
  CheckDuplicatesWentFirst(from, gone);
  for (const Tier tier : kTiers) {
    const size_t index = tier.value();
    if (tier <= from.tier || (gone.to.has_value() && tier >= *gone.to)) continue;
    if (config.windows[from.window].blocks_in(tier) == 0) continue;
    if (config.IsOnDisk(tier)) continue;  // A block falls to the disk only if it has a copy there.
    const bool admitted = gone.priority >= config.min_priority[index];
    const bool has_child = gone.child == tier;
    if (!admitted && !gone.named && !has_child) continue;
    if (config.quota(from.tenant, tier) != kNoQuota) continue;
    uint32_t came = 0;
    std::optional<Victims::Candidate> stayed;
    for (const Victims& there : victims_) {
      if (there.window != from.window || there.tier != tier) continue;
      came += there.came;
      // With several tenants, each has its share.
      if (config.tenants.empty()) stayed = LowestThatStayed(there);
    }
    const uint32_t free_before =
        stats_.windows.empty() ? 0 : stats_.windows[from.window].tiers[index].free;
    SIM_CHECK(came >= free_before, "rule 14: a block of priority ", gone.priority, " of the ",
              DefaultTierName(from.tier), " tier found no place in the ", DefaultTierName(tier),
              " tier, which had ", free_before, " free slots, of which ", came, " were taken");
    // The tier's policy may also keep a block of the same priority that it says is worth more.
    const bool may_stay = stayed.has_value() && !has_child &&
                          (gone.priority < stayed->priority ||
                           (gone.priority == stayed->priority && !gone.named &&
                            witness.HeardRefusal(from.window, tier, BlockId{gone.id})));
    SIM_CHECK(!stayed.has_value() || may_stay, "rule 14: a block of priority ", gone.priority,
              " of the ", DefaultTierName(from.tier), " tier found no place in the ",
              DefaultTierName(tier), " tier, where block ", stayed->id, " of priority ",
              stayed->priority, " stayed");
  }
}

// A tier gives up its duplicates (copies of blocks that have a nearer copy) before anything else.
// Exceptions: a tenant at its quota gives up its own blocks, and a watermark counts duplicates as
// free.
void World::CheckDuplicatesWentFirst(const Victims& from, const Victims::Gone& gone) {
  if (from.tier == kPrimaryTier || gone.named || !config.tenants.empty()) return;
  if (config.IsOnDisk(from.tier)) return;  // The disk keeps the copies that a restart can reach.
  if (config.watermark_permille[from.tier.value()] != 0) return;
  for (const Victims& there : victims_) {
    if (there.window != from.window || there.tier != from.tier) continue;
    for (const uint32_t id : there.duplicates) {
      const Node& node = shadows[from.window].node(id);
      SIM_CHECK(!node.cached() || !node.lower.contains(from.tier), "a block of the ",
                DefaultTierName(from.tier), " tier was evicted before the duplicate of block ", id);
    }
  }
}

// Priorities equal the wishes, and clocks run for blocks that nothing holds.
void World::CheckRetention(uint32_t window) {
  const Shadow& shadow = shadows[window];
  for (uint32_t id = 0; id < shadow.num_ids(); ++id) {
    const Node& node = shadow.node(id);
    if (!node.cached()) continue;
    BlockFacts& facts = ledgers[window][id];
    if (facts.refs > 0) {
      facts.deadline = absl::InfiniteFuture();
    } else if (facts.duration != absl::InfiniteDuration() &&
               facts.deadline == absl::InfiniteFuture()) {
      facts.deadline = now + facts.duration;
    }
    SIM_CHECK(node.priority == facts.priority, "block ", id, " of window ",
              WindowName(config.windows[window].size), " has priority ",
              static_cast<int>(node.priority.value()), " instead of ",
              static_cast<int>(facts.priority.value()));
    SIM_CHECK(!time_applied_ || facts.deadline > now, "the priority of block ", id, " of window ",
              WindowName(config.windows[window].size), " should have ended");
  }
}

}  // namespace pagoda::sim

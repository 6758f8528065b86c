#include "tests/sim/world.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "manager/sequences/running_sequences.h"
#include "manager/sequences/session_endings.h"
#include "manager/services/operation_scope.h"
#include "manager/tree/sequence.h"
#include "manager/warm_restart.h"
#include "tests/sim/disk_steps.h"
#include "tests/sim/follow.h"
#include "tests/sim/operations.h"

namespace pagoda::sim {
namespace {

constexpr size_t kMostCopies = 64;
// When publishable prefixes are taken. Operations have streams below this.
constexpr uint64_t kPublishingStream = uint64_t{1} << 44;

absl::Time StartTime() { return absl::FromUnixSeconds(1'000'000'000); }

std::unique_ptr<BlockManager> MakeCore(const SimConfig& config, absl::Time now, uint64_t restarts,
                                       Witness& witness) {
  BlockManager::Options options = CoreOptions(config, now, restarts);
  // The others refuse no block for another of its priority.
  if (config.eviction_policy == "learned") {
    options.make_policies = witness.Wrapped(config.eviction_policy);
  }
  absl::StatusOr<std::unique_ptr<BlockManager>> core = BlockManager::Create(std::move(options));
  SIM_CHECK(core.ok(), core.status().ToString());
  return *std::move(core);
}

}  // namespace

World::World(uint64_t seed, Trace* trace)
    : config(DrawConfig(seed, OperationWeights())),
      core(MakeCore(config, StartTime(), 0, witness)),
      now(StartTime()),
      journal(&config),
      memory(&config),
      files(&config),
      on_order(&config),
      prompts(&config),
      publishable(&config),
      trace_(trace) {
  BeginRun();
  if (Note()) Note(config.ToString());
  Absorb({});
  Check();
}

// The known state of a core that has reported nothing yet.
void World::BeginRun() {
  shadows.clear();
  ledgers.clear();
  accountants.clear();
  for (uint32_t w = 0; w < num_windows(); ++w) {
    shadows.emplace_back(&config, w);
    ledgers.emplace_back(&config, w);
    accountants.emplace_back(&config, w);
  }
  journal = Journal(&config);
  on_order = DiskOrders(&config);
  publishable.Clear();
  sessions = {};
  for (SimSession& session : sessions) {
    for (uint32_t i = 0; i < kSequencesPerSession; ++i) {
      session.sequences[i].id = SequenceId{i + 1};
    }
  }
  pins.clear();
  deferred.clear();
  quarantines.clear();
  endings.clear();
  batch_session = nullptr;
  batch_defers = exhausted = false;
  shadow_tree_ = {};
  allocations_ = {};
  late_joiner_ = MakeLateJoiner();
  hash_reader_ = MakeHashReader();
  revision_ = {};
  victims_.clear();
  stats_ = {};
}

LateJoiner World::MakeLateJoiner() const {
  constexpr uint32_t kSizes = HashReader::kMostChunkBlocks;
  return {&config, 1 + static_cast<uint32_t>(config.seed / kSizes % kSizes)};
}

HashReader World::MakeHashReader() const {
  return {config, 1 + static_cast<uint32_t>(config.seed % HashReader::kMostChunkBlocks)};
}

void World::Restart() {
  std::vector<RecoveredWindow> windows;
  size_t recovered = 0;
  for (uint32_t w = 0; w < num_windows(); ++w) {
    windows.push_back(journal.Recover(w, memory));
    recovered += windows.back().blocks.size();
  }
  if (Note()) Note(Text("  Restart, with ", recovered, " blocks"));
  memory.Crash(random);
  std::vector<RecoveredWindow> on_disk;
  if (config.has_disk) {
    const Ticket completed = on_order.completed(Lane::kBackup);
    files.Crash(random);
    for (uint32_t w = 0; w < num_windows(); ++w) files.CheckErased(w, completed);
    on_disk = files.Recover();
  }
  std::vector<std::vector<std::byte>> learned;
  for (uint32_t w = 0; w < num_windows(); ++w) learned.push_back(core->restart().Learned(w));
  core = MakeCore(config, now, ++restarts_, witness);
  BeginRun();
  for (uint32_t w = 0; w < num_windows(); ++w) {
    SIM_CHECK(learned[w].empty() == (config.eviction_policy != "learned"), "a policy learned ",
              learned[w].size(), " bytes");
    if (learned[w].empty()) continue;
    const absl::Status status = core->restart().RestoreLearned(w, learned[w]);
    SIM_CHECK(status.ok(), "RestoreLearned: ", status.ToString());
  }
  const absl::StatusOr<uint64_t> restored = core->restart().Restore(windows, now);
  SIM_CHECK(restored.ok() && *restored == recovered, "Restore: ", restored.status().ToString());
  coverage.Add(Met::kRestarted);
  coverage.Add(Met::kRecovered, recovered);
  Adopt(windows, core->TakeSlotChanges());
  if (config.has_disk) RestoreDisk(*this, on_disk);
  // A writer of the earlier run can be alive, so the free slots are not handed out.
  if (random.OneIn(2)) QuarantineFree();
  Check();
}

// The events say which blocks are cached again. The journal says in which slots: they must be the
// slots that were found. Check() then compares the slots' bytes with the content.
void World::Adopt(const std::vector<RecoveredWindow>& windows,
                  const std::vector<SlotChange>& changes) {
  journal.Apply(changes);
  size_t next = 0;
  for (uint32_t w = 0; w < num_windows(); ++w) {
    for (const RecoveredBlock& block : windows[w].blocks) {
      SIM_CHECK(next < changes.size() && changes[next].window_index == w &&
                    changes[next].slot == block.slot && changes[next].content.has_value() &&
                    changes[next].found,
                "the journal does not say that a block was found again");
      const BlockRef& name = changes[next++].content->block;
      ledgers[w][name.id].generation = name.generation;
      ledgers[w].Place(name.id.value(), block.slot);
    }
  }
  SIM_CHECK(next == changes.size(), "the journal tells of more blocks than were found");
  Absorb({.restores = true});
  for (size_t i = 0; i < changes.size(); ++i) {
    const SlotChange& change = changes[i];
    const uint32_t id = change.content->block.id.value();
    SIM_CHECK(std::erase(stored, HeldBlock{change.window_index, BlockId{id}}) == 1, "block ", id,
              " is found again without its Stored event");
    Wish(change.window_index, id, {.priority = change.content->priority});
  }
}

// Quarantines free slots, like the core. The client learns no ids, so the ledger uses ids above all
// others.
void World::QuarantineFree() {
  constexpr uint32_t kAboveAllIds = 1'024;
  core->endings().QuarantineFree(now);
  Absorb({});
  SimQuarantine quarantine;
  for (uint32_t w = 0; w < num_windows(); ++w) {
    for (uint32_t s = 0; s < config.windows[w].primary(); ++s) {
      const SlotRef slot{kPrimaryTier, SlotIndex{s}};
      if (ledgers[w].owner(slot) != kNone) continue;
      const BlockId id{kAboveAllIds + s};
      ledgers[w].Place(id.value(), slot);
      SimDeferredRelease& release = deferred.emplace_back();
      release.step = ~uint64_t{0};
      release.block = {w, id};
      release.slot = slot;
      release.writable_end = tokens_per_block();
      ++quarantine.blocks;
    }
  }
  if (quarantine.blocks > 0) quarantines.push_back(quarantine);
}

NamespaceKey World::Ask(const SimSession& session, uint32_t name_space) {
  NamespaceKey asked = config.name_spaces[name_space];
  if (session.tenant == kDefaultTenant) return asked;
  // A tenant may name itself, or leave that out.
  asked.tenant = random.OneIn(2) ? "" : config.tenants[session.tenant.value() - 1u].name;
  return asked;
}

void World::Step(uint32_t index) {
  random = Random(config.seed, index);
  if (!random.OneIn(3)) now += absl::Microseconds(random.Below(2000));
  memory.StartSome(random, config.copy_haste_percent);
  while (memory.pending() > kMostCopies) {
    Ticket ticket;
    memory.PickStarted(random, &ticket);
    EndOneCopy(ticket);
  }
  if (core->resetting()) coverage.Add(Met::kDuringReset);
  RunOperation(*this);
  if (config.has_disk) DiskStep(*this, index);
  Random own(config.seed, ~uint64_t{index});
  if (core->resetting() && own.OneIn(6)) ResetOp(*this);
  Random publishing(config.seed, kPublishingStream + index);
  if (publishing.OneIn(12)) TakePublishable(publishing);
  const uint64_t before = late_joiner_.snapshots();
  late_joiner_.Act(*core, own, now);
  coverage.Add(Met::kSnapshot, late_joiner_.snapshots() - before);
}

// Mostly all prefixes, sometimes a few.
void World::TakePublishable(Random& own) {
  constexpr uint32_t kAll = 1 << 20;
  publishable.Take(*core, shadows.back(), own.OneIn(3) ? own.Between(1, 3) : kAll, coverage);
}

void World::Finish() {
  random = Random(config.seed, ~uint64_t{1});
  if (Note()) Note("the end:");
  for (SimSession& session : sessions) {
    if (session.open) EndSession(*this, session);
  }
  while (!endings.empty()) ContinueEnding(*this);
  while (!quarantines.empty()) EndQuarantine(*this, 0);
  while (!endings.empty()) ContinueEnding(*this);
  while (!pins.empty()) UnpinOne(*this, pins.front().id);
  Ticket ticket;
  while (memory.PickStarted(random, &ticket)) EndOneCopy(ticket);
  while (core->resetting()) ResetOp(*this);
  if (config.has_disk) FinishDisk(*this);
  TakePublishable(random);
  const ManagerStats stats = core->Stats();
  for (uint32_t w = 0; w < num_windows(); ++w) {
    for (size_t t = 0; t < kMaxTiers; ++t) {
      const TierOccupancy& tier = stats.windows[w].tiers[t];
      const uint32_t retired = t == config.disk_index() ? stats.windows[w].disk.retired_slots : 0;
      SIM_CHECK(tier.active == 0 && tier.pinned == 0 && tier.in_flight == retired,
                "blocks are left over after everybody has gone");
    }
  }
  SIM_CHECK(stats.sessions == 0 && stats.sequences == 0 && stats.pins == 0 &&
                stats.quarantines == 0 && stats.copies_in_flight == 0,
            "something is left over after everybody has gone");
  for (uint32_t w = 0; w < num_windows(); ++w) {
    SIM_CHECK(core->DumpAllocated(config.windows[w].size).empty(), "a block is taken by nobody");
  }
  if (Note()) Note("  RemovePools()");
  core->RemovePools(now);
  Absorb({.reasons = Bit(RemovalReason::kReleased)});
  SIM_CHECK(last_events_ - last_expiries_ == num_windows(), "each window's pools go once");
  core->RemovePools(now);
  SIM_CHECK(core->TakeEvents().empty(), "an event after the pools went");
}

void World::ApplyTime() {
  time_applied_ = true;
  const size_t before = pins.size();
  size_t blocks = 0;
  std::erase_if(pins, [&](const SimPin& pin) {
    if (pin.expires > now) return false;
    blocks += pin.blocks.size();
    return true;
  });
  SIM_CHECK(blocks <= kMaxEndsByTime, "more pins expire at once than one call ends");
  if (config.has_disk && ExpireFetches(*this)) CountHolders();
  if (pins.size() == before) return;
  pins_expired_ = true;
  coverage.Add(Met::kPinExpired, before - pins.size());
  CountHolders();
}

void World::Absorb(const Scope& scope) {
  const EventBatch events = core->TakeEvents();
  const std::vector<SlotChange> changes = core->TakeSlotChanges();
  journal.Apply(changes);
  for (const SlotChange& change : changes) {
    if (!change.content.has_value()) continue;
    BlockFacts& facts = ledgers[change.window_index][change.content->block.id];
    if (!facts.unknown_life) continue;
    facts.generation = change.content->block.generation;
    facts.unknown_life = false;
  }
  std::vector<Order> orders = core->TakeOrders();
  for (const Event& event : events) {
    SIM_CHECK(event.revision.value() == revision_.value() + 1, "law: revision ",
              event.revision.value(), " follows ", revision_.value());
    revision_ = event.revision;
    digest.Add(event);
  }
  SIM_CHECK(core->revision() == revision_, "law: the last event has revision ", revision_.value(),
            ", the core says ", core->revision().value());
  for (const Order& order : orders) digest.Add(order);
  const auto first_of_files = std::stable_partition(
      orders.begin(), orders.end(), [](const Order& order) { return order.lane == Lane::kMemory; });
  const std::vector<Order> file_orders(first_of_files, orders.end());
  orders.erase(first_of_files, orders.end());
  for (const Order& order : orders) memory.Add(order, random);
  SIM_CHECK(file_orders.empty() || config.has_disk, "files are touched without a disk");
  NoteFiles(*this, file_orders, scope);
  Follow follow(*this, scope);
  follow.Run(events, orders);
  CheckFiles(*this, file_orders);
  last_commands_ = file_orders.size();
  last_events_ = events.size();
  last_expiries_ = follow.expiries();
  last_orders_ = orders.size();
  victims_ = follow.victims();
  for (Victims& victims : victims_) {
    if (scope.moves_named && victims.tier == kPrimaryTier) victims.candidates.clear();
    const auto& kept = scope.kept[victims.window];
    std::erase_if(victims.candidates, [&](const Victims::Candidate& candidate) {
      return std::find(kept.begin(), kept.end(), candidate.id) != kept.end();
    });
  }
  late_joiner_.See(events);
  for (const Event& event : events) {
    const absl::Status status = allocations_.Apply(event);
    SIM_CHECK(status.ok(), "law: ", status.ToString());
    hash_reader_.See(event);
  }
  if (!keep_events_) return;
  for (const Event& event : events) {
    const absl::Status status = shadow_tree_.Apply(event);
    SIM_CHECK(status.ok(), "law: ", status.ToString());
  }
  events_.insert(events_.end(), events.begin(), events.end());
  orders_.insert(orders_.end(), orders.begin(), orders.end());
}

void World::Refused(const absl::Status& status, std::initializer_list<Reason> reasons) {
  const Reason reason = ReasonOf(status);
  // For a tenant with a quota, a lack of blocks can be a lack of quota.
  const Reason reserved = reason == Reason::kTenantQuotaExceeded && !config.tenants.empty()
                              ? Reason::kBlocksExhausted
                              : reason;
  SIM_CHECK(!status.ok() && std::find(reasons.begin(), reasons.end(), reserved) != reasons.end(),
            "refused with the wrong reason: ", status.ToString());
  SIM_CHECK(status.code() == ReasonCode(reason), "refused with the wrong code");
  SIM_CHECK(last_events_ == last_expiries_ && last_orders_ == 0 && last_commands_ == 0,
            "a refusal leaves a trace: ", last_events_ - last_expiries_, " events, ", last_orders_,
            " copies: ", status.ToString());
  const ManagerStats stats = core->Stats();
  for (size_t w = 0; w < stats.windows.size(); ++w) {
    WindowCounters after = stats.windows[w].counters;
    // Except for the effects of expiries.
    after.expired_priorities = stats_.windows[w].counters.expired_priorities;
    if (pins_expired_) after.freed_blocks = stats_.windows[w].counters.freed_blocks;
    SIM_CHECK(std::memcmp(&after, &stats_.windows[w].counters, sizeof(after)) == 0,
              "a refusal was counted as something: ", status.ToString());
  }
  exhausted = exhausted || reserved == Reason::kBlocksExhausted;
  coverage.Add(reason == Reason::kBlocksExhausted       ? Met::kExhausted
               : reason == Reason::kTenantQuotaExceeded ? Met::kQuotaExceeded
               : reason == Reason::kKvLost              ? Met::kKvLost
               : reason == Reason::kWindowPassed        ? Met::kWindowPassed
               : reason == Reason::kPinBudgetExceeded   ? Met::kPinBudget
                                                        : Met::kOtherRefusal);
  if (Note()) Note(Text("    refused: ", status.ToString()));
}

void World::Wish(uint32_t window, uint32_t id, const BlockRetention& retention) {
  BlockFacts& facts = ledgers[window][id];
  facts.priority = retention.priority;
  facts.duration =
      retention.priority == kDefaultPriority ? absl::InfiniteDuration() : retention.duration;
  facts.deadline = absl::InfiniteFuture();
}

bool World::WishOf(TenantId tenant, uint32_t window, uint32_t id, const BlockRetention& retention) {
  const BlockFacts& facts = ledgers[window][id];
  if (!MayLower(tenant, shadows[window].node(id).name_space)) {
    if (retention.priority < kDefaultPriority || retention.priority < facts.priority) return false;
    if (facts.priority > kDefaultPriority && retention.duration < facts.duration) return false;
  }
  Wish(window, id, retention);
  return true;
}

void World::Raise(uint32_t window, uint32_t id, const BlockRetention& retention) {
  const BlockFacts& facts = ledgers[window][id];
  if (retention.priority > facts.priority) Wish(window, id, retention);
}

void World::Release(SimSession& session, TenantId tenant, uint32_t window, BlockId block) {
  if (!Draining(session)) return ledgers[window].LetGo(block);
  coverage.Add(Met::kDeferredReleased);
  deferred.push_back({.session = session.ref.id,
                      .tenant = tenant,
                      .step = session.steps.step,
                      .block = {window, block}});
}

void World::ReleaseEntry(SimSession& session, SimSequence& sequence, uint32_t window,
                         uint32_t index) {
  SimTable& table = sequence.tables[window];
  const BlockHandle own = table.blocks[index];
  if (own.id == kNoBlock) return;
  const size_t deferred_before = deferred.size();
  Release(session, sequence.tenant, window, own.id);
  if (deferred.size() > deferred_before) {
    SimDeferredRelease& release = deferred.back();
    const uint32_t begin = index * tokens_per_block();
    release.slot = {kPrimaryTier, own.slot};
    if (Ready(sequence.ready)) {
      release.count =
          std::min(sequence.computed - std::min(sequence.computed, begin), tokens_per_block());
      std::copy_n(sequence.values.begin() + begin, release.count, release.values.begin());
      const uint32_t end = std::min(sequence.reserved - begin, tokens_per_block());
      // Running kernels can still write bytes that no other sequence reads. Tokens that forks have
      // had were computed once: after a loss they are written again with the same values.
      const BlockFacts& facts = ledgers[window][own.id];
      const bool alone = facts.refs == 1 && !shadows[window].node(own.id.value()).cached() &&
                         ledgers[window].owner(release.slot) == own.id.value();
      const uint32_t forked = sequence.forked - std::min(sequence.forked, begin);
      release.writable_begin = std::max(release.count, forked);
      release.writable_end = alone ? end : 0;
    }
  }
  if (table.canonical[index] != kNoBlock)
    Release(session, sequence.tenant, window, table.canonical[index]);
  table.blocks[index] = {};
  table.canonical[index] = kNoBlock;
}

void World::EndDeferred(SessionId session, uint64_t completed_step) {
  std::erase_if(deferred, [&](const SimDeferredRelease& release) {
    if (release.session != session || release.step > completed_step) return false;
    Value* values = memory.slot(release.block.window, release.slot);
    for (uint32_t i = release.writable_begin; i < release.writable_end; ++i)
      values[i] = random.Next();
    return true;
  });
}

// The computed tokens before the first block whose bytes are missing or may be wrong.
uint32_t World::ComputedWithout(const SimSequence& sequence, uint32_t window, SlotRef lost) const {
  uint32_t left = sequence.computed;
  for (uint32_t w = 0; w < num_windows(); ++w) {
    const std::vector<BlockHandle>& blocks = sequence.tables[w].blocks;
    for (uint32_t i = 0; i * tokens_per_block() < left; ++i) {
      const SlotRef slot{kPrimaryTier, blocks[i].slot};
      if (blocks[i].id == kNoBlock || memory.Arriving(w, slot)) continue;
      const uint32_t begin = i * tokens_per_block();
      const bool is_lost = w == window && slot == lost;
      if (is_lost || *memory.slot(w, slot) != sequence.values[begin]) left = begin;
    }
  }
  return CanGoOn(*this, sequence, left) ? left : 0;
}

void World::EndOneCopy(Ticket ticket) {
  const bool fails = random.Below(1000) < config.copy_failure_permille;
  if (Note()) Note(Text("    copy ", ticket.value(), fails ? " fails" : " is done"));
  const Memory::Ended ended =
      memory.End(ticket, fails ? Memory::Outcome::kFailed : Memory::Outcome::kDone, random);
  if (fails) coverage.Add(Met::kCopyFailed);
  ApplyTime();
  const bool arrived = !fails && ended.lost.slot == kNoSlot;
  const std::optional<uint32_t> staged_in = on_order.CopyEnded(ticket, arrived);
  core->Complete(Lane::kMemory, ticket, fails ? absl::DataLossError("sim") : absl::OkStatus(), now);
  Absorb({.reasons = Bit(RemovalReason::kLost), .ends_copy = true});
  if (staged_in.has_value()) FollowDroppedBackups(*this, *staged_in);
  // Clients learn of their losses later.
  for (SimSession& session : sessions) {
    if (!session.in_table()) continue;
    for (SimSequence& sequence : session.sequences) {
      if (!sequence.running) continue;
      const uint32_t computed =
          (*core->sequences().FindSequence(session.ref.id, sequence.id))->computed_tokens;
      if (computed == sequence.computed) continue;
      const uint32_t left = ComputedWithout(sequence, ended.window, ended.lost);
      SIM_CHECK(computed == left, "sequence ", sequence.id.value(), " is cut to ", computed,
                " computed tokens of ", sequence.computed, " instead of ", left);
      sequence.computed = computed;
      ++sequence.losses;
      coverage.Add(Met::kShortened);
    }
  }
  Check();
}

}  // namespace pagoda::sim

#include "tests/sim/world.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "pools/error.h"
#include "tests/sim/follow.h"
#include "tests/sim/operations.h"

namespace pagoda::sim {
namespace {

constexpr size_t kMostCopies = 64;

absl::Time StartTime() { return absl::FromUnixSeconds(1'000'000'000); }

std::unique_ptr<BlockManager> MakeCore(const SimConfig& config) {
  absl::StatusOr<std::unique_ptr<BlockManager>> core =
      BlockManager::Create(CoreOptions(config, StartTime()));
  SIM_CHECK(core.ok(), core.status().ToString());
  return *std::move(core);
}

}  // namespace

World::World(uint64_t seed, Trace* trace)
    : config(DrawConfig(seed, OperationWeights())),
      core(MakeCore(config)),
      now(StartTime()),
      memory(&config),
      prompts(&config),
      trace_(trace) {
  for (uint32_t w = 0; w < num_windows(); ++w) {
    shadows.emplace_back(&config, w);
    ledgers.emplace_back(&config, w);
  }
  for (SimSession& session : sessions) {
    for (uint32_t i = 0; i < kSequencesPerSession; ++i) {
      session.sequences[i].id = SequenceId{i + 1};
    }
  }
  if (Note()) Note(config.ToString());
  Absorb({});
  Check();
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
  RunOperation(*this);
  Random own(config.seed, ~uint64_t{index});
  const uint64_t before = late_joiner_.snapshots();
  late_joiner_.Act(*core, own, now);
  coverage.Add(Met::kSnapshot, late_joiner_.snapshots() - before);
}

void World::Finish() {
  random = Random(config.seed, ~uint64_t{1});
  if (Note()) Note("the end:");
  for (SimSession& session : sessions) {
    if (session.open) EndSession(*this, session);
  }
  while (!quarantines.empty()) EndQuarantine(*this, 0);
  while (!pins.empty()) UnpinOne(*this, pins.front().id);
  Ticket ticket;
  while (memory.PickStarted(random, &ticket)) EndOneCopy(ticket);
  const ManagerStats stats = core->Stats();
  for (uint32_t w = 0; w < num_windows(); ++w) {
    for (const TierOccupancy& tier : stats.windows[w].tiers) {
      SIM_CHECK(tier.active == 0 && tier.pinned == 0 && tier.in_flight == 0,
                "blocks are left over after everybody has gone");
    }
  }
  SIM_CHECK(stats.sessions == 0 && stats.sequences == 0 && stats.pins == 0 &&
                stats.quarantines == 0 && stats.copies_in_flight == 0,
            "something is left over after everybody has gone");
}

void World::ApplyTime() {
  time_applied_ = true;
  const size_t before = pins.size();
  std::erase_if(pins, [this](const SimPin& pin) { return pin.expires <= now; });
  if (pins.size() == before) return;
  pins_expired_ = true;
  coverage.Add(Met::kPinExpired, before - pins.size());
  CountHolders();
}

void World::Absorb(const Scope& scope) {
  const EventBatch events = core->TakeEvents();
  const std::vector<CopyOrder> orders = core->TakeCopies();
  for (const Event& event : events) {
    SIM_CHECK(event.revision.value() == revision_.value() + 1, "law: revision ",
              event.revision.value(), " follows ", revision_.value());
    revision_ = event.revision;
    digest.Add(event);
  }
  SIM_CHECK(core->revision() == revision_, "law: the last event has revision ", revision_.value(),
            ", the core says ", core->revision().value());
  for (const CopyOrder& order : orders) {
    memory.Order(order, random);
    digest.Add(order);
  }
  Follow follow(*this, scope);
  follow.Run(events, orders);
  last_events_ = events.size();
  last_expiries_ = follow.expiries();
  last_orders_ = orders.size();
  victims_ = follow.victims();
  for (Victims& victims : victims_) {
    if (scope.moves_named && victims.tier == Tier::kPrimary) victims.candidates.clear();
    const auto& kept = scope.kept[victims.window];
    std::erase_if(victims.candidates, [&](const Victims::Candidate& candidate) {
      return std::find(kept.begin(), kept.end(), candidate.id) != kept.end();
    });
  }
  late_joiner_.See(events);
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
  SIM_CHECK(!status.ok() && std::find(reasons.begin(), reasons.end(), reason) != reasons.end(),
            "refused with the wrong reason: ", status.ToString());
  SIM_CHECK(status.code() == ReasonCode(reason), "refused with the wrong code");
  SIM_CHECK(last_events_ == last_expiries_ && last_orders_ == 0,
            "a refusal leaves a trace: ", last_events_ - last_expiries_, " events, ", last_orders_,
            " copies: ", status.ToString());
  const ManagerStats stats = core->Stats();
  for (size_t w = 0; w < stats.windows.size(); ++w) {
    WindowCounters after = stats.windows[w].counters;
    // But for what time brought.
    after.expired_priorities = stats_.windows[w].counters.expired_priorities;
    if (pins_expired_) after.freed_blocks = stats_.windows[w].counters.freed_blocks;
    SIM_CHECK(std::memcmp(&after, &stats_.windows[w].counters, sizeof(after)) == 0,
              "a refusal was counted as something: ", status.ToString());
  }
  exhausted = exhausted || reason == Reason::kBlocksExhausted;
  coverage.Add(reason == Reason::kBlocksExhausted     ? Met::kExhausted
               : reason == Reason::kKvLost            ? Met::kKvLost
               : reason == Reason::kWindowPassed      ? Met::kWindowPassed
               : reason == Reason::kPinBudgetExceeded ? Met::kPinBudget
                                                      : Met::kOtherRefusal);
  if (Note()) Note(Text("    refused: ", status.ToString()));
}

void World::Wish(uint32_t window, uint32_t id, const BlockRetention& retention) {
  BlockFacts& facts = ledgers[window][id];
  facts.priority = retention.priority;
  facts.duration =
      retention.priority == kDefaultPriority ? absl::InfiniteDuration() : retention.duration;
  facts.deadline = absl::InfiniteFuture();
  facts.unsure = false;
}

void World::Raise(uint32_t window, uint32_t id, const BlockRetention& retention) {
  if (retention.priority > ledgers[window][id].priority) Wish(window, id, retention);
}

void World::Release(SimSession& session, uint32_t window, BlockId block) {
  if (!Draining(session)) return ledgers[window].LetGo(block);
  coverage.Add(Met::kDrained);
  drains.push_back(
      {.session = session.ref.id, .step = session.steps.step, .block = {window, block}});
}

void World::ReleaseEntry(SimSession& session, SimSequence& sequence, uint32_t window,
                         uint32_t index) {
  SimTable& table = sequence.tables[window];
  const BlockHandle own = table.blocks[index];
  if (own.id == kNoBlock) return;
  const size_t drains_before = drains.size();
  Release(session, window, own.id);
  if (drains.size() > drains_before) {
    SimDrain& drain = drains.back();
    const uint32_t begin = index * tokens_per_block();
    drain.slot = {Tier::kPrimary, own.slot};
    if (Ready(sequence.ready)) {
      drain.count =
          std::min(sequence.computed - std::min(sequence.computed, begin), tokens_per_block());
      std::copy_n(sequence.values.begin() + begin, drain.count, drain.values.begin());
      const uint32_t end = std::min(sequence.room - begin, tokens_per_block());
      // What nobody else reads may still be written by kernels that run. What forks have had was
      // computed once: it is written again, after a loss, as it was.
      const BlockFacts& facts = ledgers[window][own.id];
      const bool alone = facts.refs == 1 && !shadows[window].node(own.id.value()).cached() &&
                         ledgers[window].owner(drain.slot) == own.id.value();
      const uint32_t forked = sequence.forked - std::min(sequence.forked, begin);
      drain.writable_begin = std::max(drain.count, forked);
      drain.writable_end = alone ? end : 0;
    }
  }
  if (table.canonical[index] != kNoBlock) Release(session, window, table.canonical[index]);
  table.blocks[index] = {};
  table.canonical[index] = kNoBlock;
}

void World::EndDrains(SessionId session, uint64_t completed_step) {
  std::erase_if(drains, [&](const SimDrain& drain) {
    if (drain.session != session || drain.step > completed_step) return false;
    Value* values = memory.slot(drain.block.window, drain.slot);
    for (uint32_t i = drain.writable_begin; i < drain.writable_end; ++i) values[i] = random.Next();
    return true;
  });
}

// The computed tokens in front of the first block whose bytes are not there, or may be wrong.
uint32_t World::ComputedWithout(const SimSequence& sequence, uint32_t window, SlotRef lost) const {
  uint32_t left = sequence.computed;
  for (uint32_t w = 0; w < num_windows(); ++w) {
    const std::vector<BlockHandle>& blocks = sequence.tables[w].blocks;
    for (uint32_t i = 0; i * tokens_per_block() < left; ++i) {
      const SlotRef slot{Tier::kPrimary, blocks[i].slot};
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
  core->CompleteCopy(ticket, fails ? absl::DataLossError("sim") : absl::OkStatus(), now);
  Absorb({.reasons = Bit(RemovalReason::kLost)});
  // Who has lost something is told later.
  for (SimSession& session : sessions) {
    if (!session.open) continue;
    for (SimSequence& sequence : session.sequences) {
      if (!sequence.running) continue;
      const uint32_t computed = (*core->FindSequence(session.ref.id, sequence.id))->computed_tokens;
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

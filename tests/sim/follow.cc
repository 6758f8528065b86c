#include "tests/sim/follow.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace pagoda::sim {
namespace {

std::string Describe(const Event& event) {
  std::string text = Text("window ", WindowName(event.window), ": ");
  if (const auto* stored = std::get_if<StoredEvent>(&event.what)) {
    text += "stored";
    for (const StoredBlock& block : stored->blocks) {
      text += Text(" ", block.id, " (", block.token_count, " tokens)");
    }
    if (stored->parent != kNoBlock) text += Text(" below ", stored->parent);
  } else if (const auto* updated = std::get_if<UpdatedEvent>(&event.what)) {
    text += Text("block ", updated->id);
    if (updated->tier.has_value()) text += Text(" to ", DefaultTierName(updated->tier->new_value));
    if (updated->lower.has_value()) {
      text += Text(" lower copies ", static_cast<int>(updated->lower->old_value.bits()), " to ",
                   static_cast<int>(updated->lower->new_value.bits()));
    }
    if (updated->priority.has_value()) {
      text += Text(" to priority ", updated->priority->new_value);
    }
    if (updated->ended_pin.has_value()) {
      text +=
          Text(" ends pin ", updated->ended_pin->pin, ": ", PinEndName(updated->ended_pin->why));
    }
  } else if (const auto* removed = std::get_if<RemovedEvent>(&event.what)) {
    text += Text(RemovalReasonName(removed->reason), ":");
    if (removed->scope == RemovedEvent::Scope::kPools) text += " the pools";
    for (const BlockId id : removed->blocks) text += Text(" ", id);
  } else {
    text += "created";
    for (const BlockId id : std::get<CreatedEvent>(event.what).blocks) text += Text(" ", id);
  }
  return text;
}

std::string Describe(const Order& order) {
  return Text("copy ", order.ticket, " of window ", order.window_index, ": ", order.num_tokens,
              " tokens from ", DefaultTierName(order.source.tier), " slot ", order.source.slot,
              " to ", DefaultTierName(order.target.tier), " slot ", order.target.slot, ", after ",
              order.after[0], " and ", order.after[1]);
}

}  // namespace

void Follow::Run(const EventBatch& events, const std::vector<Order>& orders) {
  world_.taken_over.clear();
  world_.copied.clear();
  NoteMoves(events);
  if (!for_space_.empty() || !moves_.empty() || !off_disk_.empty()) {
    for (uint32_t w = 0; w < world_.num_windows(); ++w) NoteCandidates(w);
  }
  for (const Order& order : orders) {
    if (world_.Note()) world_.Note("    " + Describe(order));
    ApplyOrder(order);
  }
  for (const Event& event : events) {
    const uint32_t window = WindowIndex(event.window);
    SIM_CHECK(event.time == world_.now, "event ", event.revision.value(), " has another time");
    if (world_.Note()) world_.Note("    " + Describe(event));
    std::visit([&](const auto& what) { Apply(window, what); }, event.what);
  }
  for (const HeldBlock& changed : changed_) KeepCopies(changed.window, changed.id.value());
  // A match used them, so running clocks start again.
  for (const HeldBlock& copied : copied_) {
    BlockFacts& facts = world_.ledgers[copied.window][copied.id];
    if (facts.refs == 0) facts.deadline = absl::InfiniteFuture();
  }
  NoteStored();
  NoteDetached();
}

uint32_t Follow::WindowIndex(WindowSize size) const {
  for (uint32_t w = 0; w < world_.num_windows(); ++w) {
    if (world_.config.windows[w].size == size) return w;
  }
  Fail("an event of an unknown window");
}

// Rule 13: the blocks that can be evicted, by tier.
void Follow::NoteCandidates(uint32_t window) {
  const Shadow& shadow = world_.shadows[window];
  const uint16_t tenants = world_.config.num_tenants();
  std::vector<Victims> victims(kMaxTiers * tenants);
  for (size_t i = 0; i < victims.size(); ++i) {
    victims[i].window = window;
    victims[i].tier = Tier(i / tenants);
    victims[i].tenant = TenantId{static_cast<uint16_t>(i % tenants)};
  }
  for (uint32_t id = 0; id < shadow.num_ids(); ++id) {
    const Node& node = shadow.node(id);
    for (const Tier tier : kTiers) {
      if (!node.cached() || !node.lower.contains(tier)) continue;
      victims[tier.value() * tenants].duplicates.push_back(id);
    }
    if (!node.cached()) continue;
    const TenantId tenant = world_.config.OwnerOf(node.name_space);
    if (world_.config.has_disk && world_.IsDiskCandidate(window, id)) {
      victims[world_.config.disk_index() * tenants + tenant.value()].candidates.push_back(
          {id, node.priority});
    }
    if (world_.IsOnlyOnDisk(window, id) || !world_.IsCandidate(window, id)) continue;
    victims[node.tier.value() * tenants + tenant.value()].candidates.push_back({id, node.priority});
  }
  for (Victims& tier : victims) victims_.push_back(std::move(tier));
}

// Whether its last holder releases it in this call.
bool Follow::LetGo(uint32_t window, uint32_t id) const {
  const HeldBlock held{window, BlockId{id}};
  return world_.ledgers[window][id].refs == 1 &&
         std::find(scope_.let_go.begin(), scope_.let_go.end(), held) != scope_.let_go.end();
}

// The victims of the tenant that owns the block.
Victims& Follow::VictimsOf(uint32_t window, Tier tier, uint32_t id) {
  const TenantId tenant = world_.config.OwnerOf(world_.shadows[window].node(id).name_space);
  return victims_[(window * kMaxTiers + tier.value()) * world_.config.num_tenants() +
                  tenant.value()];
}

void Follow::NoteVictim(uint32_t window, Tier tier, uint32_t id, const Victims::Gone& gone) {
  SIM_CHECK(world_.ledgers[window][id].refs <= (LetGo(window, id) ? 1 : 0), "block ", id,
            " of window ", WindowName(world_.config.windows[window].size),
            " is evicted while it is held");
  NoteGone(window, tier, id, gone);
}

void Follow::NoteGone(uint32_t window, Tier tier, uint32_t id, const Victims::Gone& gone) {
  const Shadow& shadow = world_.shadows[window];
  for (uint32_t c = shadow.node(id).first_child; c != kNone && world_.config.IsOnDisk(tier);
       c = shadow.node(c).next_sibling) {
    const Node& child = shadow.node(c);
    // Removals are reported together, so the event about a child that has left already can come
    // later.
    SIM_CHECK(!child.cached() || !(child.tier == tier || child.lower.contains(tier)) ||
                  IsAmong(off_disk_, window, c),
              "the disk gives up block ", id, " before its child ", c);
  }
  // A block that comes to disk takes no place of a block with a higher priority. In a sliding
  // window the block can have left already, and freed its own place. A block that falls to the disk
  // can take a place of its tenant.
  const TenantId owner = world_.config.OwnerOf(world_.shadows[window].node(id).name_space);
  if (scope_.orders_backups && world_.config.IsOnDisk(tier) && world_.full(window) &&
      world_.config.quota(owner, tier) == kNoQuota) {
    SIM_CHECK(highest_staged_.has_value() && gone.priority <= *highest_staged_,
              "the disk gives up block ", id, " of priority ", gone.priority,
              " for nothing of such a priority");
  }
  Victims& victims = VictimsOf(window, tier, id);
  victims.gone.emplace_back(gone).id = id;
  // If its id occurs again in the same call, that is another block.
  std::erase_if(victims.candidates,
                [id](const Victims::Candidate& candidate) { return candidate.id == id; });
}

void Follow::Apply(uint32_t, const CreatedEvent& created) {
  SIM_CHECK(created.blocks.empty() != created.blocks_per_tier.empty(),
            "a Created event says one thing");
  if (world_.config.lifecycle != LifecycleEvents::kAll) return;
  world_.coverage.Add(Met::kTaken, created.blocks.size());
}

void Follow::Apply(uint32_t window, const StoredEvent& stored) {
  SIM_CHECK(scope_.publisher != nullptr || scope_.restores,
            "law: blocks stored where nobody publishes");
  Shadow& shadow = world_.shadows[window];
  for (const StoredBlock& block : stored.blocks) {
    SIM_CHECK(block.tier == kPrimaryTier || scope_.restores, "block ", block.id.value(),
              " is stored below");
    SIM_CHECK(!world_.config.IsOnDisk(block.tier) || scope_.found_on_disk != nullptr, "block ",
              block.id.value(), " is stored on disk");
    const bool hole = shadow.node(block.id.value()).state == Node::State::kHole;
    if (hole) world_.coverage.Add(Met::kHoleFilled);
    stored_.push_back({window, block.id});
    if (window + 1 == world_.num_windows()) world_.publishable.Stored(block.id.value());
  }
  shadow.ApplyStored(stored);
  if (scope_.found_on_disk == nullptr) return;
  for (const StoredBlock& block : stored.blocks) NoteFound(window, block.id.value());
}

void Follow::Apply(uint32_t window, const UpdatedEvent& updated) {
  Shadow& shadow = world_.shadows[window];
  const uint32_t id = updated.id.value();
  BlockFacts& facts = world_.ledgers[window][id];
  if (updated.ended_pin.has_value()) EndPin(*updated.ended_pin);
  if (updated.priority.has_value()) {
    if (facts.deadline <= world_.now && updated.priority->new_value == kDefaultPriority) {
      ++expiries_;
      world_.coverage.Add(Met::kPriorityExpired);
      facts.priority = kDefaultPriority;
      facts.duration = absl::InfiniteDuration();
      facts.deadline = absl::InfiniteFuture();
    } else {
      // A new block can inherit the retention of the tails that it begins with.
      SIM_CHECK(scope_.sets_priorities || scope_.publisher != nullptr, "the priority of block ", id,
                " changed for no reason");
    }
  }
  if (updated.tier.has_value()) {
    // An expiry comes before the move, in one event with it.
    const Priority priority =
        updated.priority.has_value() ? updated.priority->new_value : shadow.node(id).priority;
    NoteMove(window, updated, priority);
  }
  if (updated.lower.has_value()) NoteLower(window, updated);
  shadow.ApplyUpdated(updated);
  if (updated.tier.has_value() || updated.lower.has_value())
    changed_.push_back({window, updated.id});
}

// The changes of the block's farther copies.
void Follow::NoteLower(uint32_t window, const UpdatedEvent& updated) {
  const uint32_t id = updated.id.value();
  const SimConfig& config = world_.config;
  const auto& [before, after] = *updated.lower;
  const bool moved = updated.tier.has_value();
  if (config.has_disk && after.contains(config.disk()) && !before.contains(config.disk()) &&
      !(moved && config.IsOnDisk(updated.tier->old_value))) {
    if (scope_.found_on_disk != nullptr) return NoteFound(window, id);
    SIM_CHECK(scope_.backed_up == (HeldBlock{window, updated.id}), "block ", id,
              " has a copy on disk that nobody wrote");
    world_.coverage.Add(Met::kBackedUp);
    return;
  }
  if (config.has_disk && before.contains(config.disk()) && !after.contains(config.disk()) &&
      !(moved && config.IsOnDisk(updated.tier->new_value))) {
    world_.coverage.Add(Met::kDiskCopyDropped);
    // A tenant at its quota also gives up copies whose blocks do not fall.
    const TenantId owner = config.OwnerOf(world_.shadows[window].node(id).name_space);
    if (!scope_.orders_backups || config.quota(owner, config.disk()) != kNoQuota) return;
    // A priority expires before the drop, in one event with it.
    const Priority priority = updated.priority.has_value()
                                  ? updated.priority->new_value
                                  : world_.shadows[window].node(id).priority;
    NoteGone(window, config.disk(), id, {.priority = priority, .to = std::nullopt});
    return;
  }
  if (moved) return;
  world_.coverage.Add(Met::kDuplicateDropped);
  for (const Tier tier : kTiers) {
    if (before.contains(tier) && !after.contains(tier)) ForgetDuplicate(window, tier, id);
  }
}

// The tier's copy of the block is no duplicate any more, even if the block falls there and is
// onboarded again in the same call.
void Follow::ForgetDuplicate(uint32_t window, Tier tier, uint32_t id) {
  if (victims_.empty()) return;  // Nothing is evicted in this call.
  std::erase(victims_[(window * kMaxTiers + tier.value()) * world_.config.num_tenants()].duplicates,
             id);
}

// Records a block, or a copy of one, that the file has from an earlier run.
void Follow::NoteFound(uint32_t window, uint32_t id) {
  const Node& node = world_.shadows[window].node(id);
  const Value value = node.values[node.count - 1];
  for (const RecoveredBlock& block : (*scope_.found_on_disk)[window].blocks) {
    const Disk::Written& written = world_.files.written(window, block.slot.slot);
    if (written.path.back() != value || written.count() != node.count) continue;
    SIM_CHECK(world_.ledgers[window].owner(block.slot) == kNone, "slot ", block.slot.slot.value(),
              " of the file has two blocks");
    if (world_.config.IsOnDisk(node.tier)) {
      world_.ledgers[window].Unplace(id);  // It can have belonged to another block in this call.
      world_.ledgers[window][id].unknown_life = true;
    }
    world_.ledgers[window].AddCopy(id, block.slot);
    world_.coverage.Add(Met::kRecoveredFromDisk);
    return;
  }
  Fail(Text("block ", id, " was not found on disk"));
}

void Follow::NoteFetched(uint32_t window, const UpdatedEvent& updated) {
  const auto fetched =
      std::find_if(scope_.fetched.begin(), scope_.fetched.end(), [&](const Scope::Fetched& one) {
        return one.block == HeldBlock{window, updated.id};
      });
  SIM_CHECK(
      fetched != scope_.fetched.end() && updated.tier->new_value == world_.config.above_disk(),
      "block ", updated.id.value(), " comes from disk without a fetch");
  world_.ledgers[window].AddCopy(updated.id.value(), {updated.tier->new_value, fetched->slot});
  world_.coverage.Add(Met::kFetched);
}

// The block has only the copies that the events report.
void Follow::KeepCopies(uint32_t window, uint32_t id) {
  const Node& node = world_.shadows[window].node(id);
  if (!node.cached()) return;
  TierSet tiers = node.lower;
  tiers.Add(node.tier);
  world_.ledgers[window].KeepCopies(id, tiers);
  const BlockFacts& facts = world_.ledgers[window][id];
  for (const Tier tier : kTiers) {
    SIM_CHECK(!node.lower.contains(tier) || facts.copies[tier.value()] != kNoSlot, "block ", id,
              " has no copy in the ", DefaultTierName(tier), " tier");
  }
}

// It leaves its slot without an order. Another order can have given it a slot there since.
void Follow::LeaveFreely(uint32_t window, uint32_t id, Tier from) {
  Ledger& ledger = world_.ledgers[window];
  const SlotRef slot{from, ledger[id].copies[from.value()]};
  const bool came_now = std::any_of(arrived_.begin(), arrived_.end(), [&](const Arrived& arrived) {
    return arrived.window == window && arrived.id == id && arrived.slot == slot;
  });
  if (!came_now) ledger.RemoveCopy(id, slot);
}

// It leaves the tree. Its holders keep its nearest copy.
void Follow::DropDuplicatesOf(uint32_t window, uint32_t id) {
  TierSet nearest;
  const Tier tier = world_.shadows[window].node(id).tier;
  if (!world_.config.IsOnDisk(tier)) nearest.Add(tier);  // Nothing holds a block there.
  world_.ledgers[window].KeepCopies(id, nearest);
}

void Follow::NoteMove(uint32_t window, const UpdatedEvent& updated, Priority priority) {
  const uint32_t id = updated.id.value();
  const auto [from, to] = *updated.tier;
  const bool freely = updated.lower.has_value() && updated.lower->old_value.contains(to);
  Coverage& coverage = world_.coverage;
  if (!scope_.fetched.empty()) return NoteFetched(window, updated);
  if (to < from) {
    SIM_CHECK(to == kPrimaryTier, "block ", id, " comes up to the ", DefaultTierName(to),
              " tier and no further");
    coverage.Add(Met::kOnboarded);
    if (from > Tier(1)) coverage.Add(Met::kOnboardedFar);
    return;
  }
  // A block whose bytes did not arrive above is still cached below.
  if (scope_.ends_copy) {
    SIM_CHECK(freely, "a copy's end moves block ", id, " to where it has no copy");
    coverage.Add(Met::kLostOneCopy);
    return;
  }
  SIM_CHECK(freely || !world_.config.IsOnDisk(to), "block ", id, " falls to disk without a copy");
  if (freely) {
    coverage.Add(Met::kFreelyEvicted);
    if (world_.config.IsOnDisk(to)) coverage.Add(Met::kFellToDisk);
    LeaveFreely(window, id, from);
  }
  const bool named = scope_.moves_named && from == kPrimaryTier;
  Victims::Gone gone{.priority = priority, .to = to, .named = named};
  for (size_t t = kMaxTiers; t-- > 0 && world_.full(window);) {
    if (world_.shadows[window].HasNearChildren(id, kTiers[t])) gone.child = kTiers[t];
  }
  NoteVictim(window, from, id, gone);
  if (freely) {
    ForgetDuplicate(window, to, id);
  } else {
    ++VictimsOf(window, to, id).came;
  }
  coverage.Add(Met::kOffloaded);
  if (from != kPrimaryTier) coverage.Add(Met::kMiddleFell);
  const SimConfig::Window& config = world_.config.windows[window];
  if (std::any_of(kTiers.begin(), kTiers.end(), [&](Tier tier) {
        return tier > from && tier < to && config.blocks_in(tier) != 0;
      })) {
    coverage.Add(Met::kFellPast);
  }
}

// Pins that expire were removed before the call. An unpinned one is removed after it.
void Follow::EndPin(const EndedPin& ended) {
  const auto pin = std::find_if(world_.pins.begin(), world_.pins.end(),
                                [&](const SimPin& one) { return one.id == ended.pin; });
  SIM_CHECK((pin == world_.pins.end()) == (ended.why == PinEnd::kExpired), "pin ",
            ended.pin.value(), " ended: ", std::string(PinEndName(ended.why)));
  SIM_CHECK(ended.removal.has_value() == (ended.why == PinEnd::kPrefixLeft),
            "a removal ends a pin where its prefix leaves");
  if (ended.why == PinEnd::kExpired) ++expiries_;
  if (ended.why != PinEnd::kPrefixLeft) return;
  SIM_CHECK((scope_.reasons & Bit(*ended.removal)) != 0, "a pin ends for a removal that cannot be");
  for (const HeldBlock& block : pin->blocks) world_.ledgers[block.window].LetGo(block.id);
  world_.pins.erase(pin);
  world_.coverage.Add(Met::kPinCut);
}

// Notes blocks that move or leave to free slots, before they do.
void Follow::NoteMoves(const EventBatch& events) {
  for (const Event& event : events) {
    const uint32_t window = WindowIndex(event.window);
    if (const auto* updated = std::get_if<UpdatedEvent>(&event.what)) {
      if (updated->lower.has_value() && world_.config.has_disk &&
          updated->lower->old_value.contains(world_.config.disk()) &&
          !updated->lower->new_value.contains(world_.config.disk()) &&
          !(updated->tier.has_value() && world_.config.IsOnDisk(updated->tier->new_value))) {
        off_disk_.push_back({window, updated->id});
      }
      if (!updated->tier.has_value()) continue;
      moves_.push_back({window, updated->id.value(), updated->tier->new_value});
    } else if (const auto* removed = std::get_if<RemovedEvent>(&event.what)) {
      if ((Bit(removed->reason) & kForSpace) == 0) continue;
      for (const BlockId id : removed->blocks) for_space_.push_back({window, id});
    }
  }
}

// A copy moves its source's block if an event says so. Otherwise it copies a part, into a fresh
// block.
void Follow::ApplyOrder(const Order& order) {
  const uint32_t window = order.window_index;
  Ledger& ledger = world_.ledgers[window];
  world_.coverage.Add(Met::kCopy);
  const uint32_t id = ledger.owner(order.source);
  SIM_CHECK(id != kNone, "copy ", order.ticket.value(), " reads a slot in which no block lies");
  SIM_CHECK(!world_.config.IsStaging(window, order.source), "copy ", order.ticket.value(),
            " reads a staging slot");
  if (world_.config.IsStaging(window, order.target)) return Stage(order, window);
  SIM_CHECK(!world_.on_order.InTransit(window, order.target, order.ticket), "D6: copy ",
            order.ticket.value(), " goes to a slot in transit");
  const auto move = std::find_if(moves_.begin(), moves_.end(), [&](const Move& m) {
    return m.window == window && m.id == id && m.to == order.target.tier && !m.copied;
  });
  if (move == moves_.end()) {
    SIM_CHECK(order.target.tier == kPrimaryTier && order.num_tokens < world_.tokens_per_block(),
              "copy ", order.ticket.value(), " is neither a move nor of a part");
    copied_.push_back({window, BlockId{id}});
    world_.copied.push_back(copied_.back());
    return;
  }
  move->copied = true;
  const bool goes_down = order.target.tier > order.source.tier;
  SIM_CHECK(order.num_tokens >= world_.shadows[window].node(id).count, "copy ",
            order.ticket.value(), " moves block ", id, " in part");
  ledger.AddCopy(id, order.target);
  if (goes_down) ledger.RemoveCopy(id, order.source);
  arrived_.push_back({window, id, order.target});
  if (goes_down && order.target.tier > Tier(1) && IsFull(window, order.target.tier)) {
    world_.coverage.Add(Met::kSwappedFar);
  }
}

// A copy to a staging slot begins a backup.
void Follow::Stage(const Order& order, uint32_t window) {
  const Shadow& shadow = world_.shadows[window];
  const uint32_t id = world_.ledgers[window].owner(order.source);
  const Node& node = shadow.node(id);
  SIM_CHECK(scope_.orders_backups, "a backup is ordered where none may be");
  SIM_CHECK(order.target.tier == world_.config.above_disk() && world_.config.has_disk_in(window),
            "a staging slot is in the tier above the disk");
  SIM_CHECK(node.cached() && order.num_tokens >= node.count, "a backup of block ", id,
            ", which is not cached, or not whole");
  // A block that loses its copy on disk in this call loses it before the order.
  const auto is_on_disk = [&](uint32_t block) {
    return world_.CopyOnDisk(window, block) != kNoSlot && !IsAmong(off_disk_, window, block);
  };
  SIM_CHECK(!is_on_disk(id), "a backup of block ", id, ", which is on disk");
  SIM_CHECK(node.parent == kNone || is_on_disk(node.parent) ||
                world_.on_order.BackupOf(window, node.parent) != nullptr,
            "block ", id, " goes to disk before its parent");
  world_.on_order.Stage(window, id, order.target.slot, order.ticket, world_.now);
  // An expiry comes before the order, and its event comes after it.
  const bool expires = world_.ledgers[window][id].deadline <= world_.now;
  const Priority priority = expires ? std::max(node.priority, kDefaultPriority) : node.priority;
  highest_staged_ = std::max(highest_staged_.value_or(Priority{0}), priority);
}

// Whether every slot of the tier has a block, including the spare, because a block of the tier is
// about to be onboarded.
bool Follow::IsFull(uint32_t window, Tier tier) const {
  const Ledger& ledger = world_.ledgers[window];
  for (uint32_t s = 0; s < world_.config.plain_slots_in(window, tier); ++s) {
    const uint32_t owner = ledger.owner({tier, SlotIndex{s}});
    if (owner == kNone || IsAmong(for_space_, window, owner)) return false;
  }
  return true;
}

// A stored block has the default priority until its sequence's wish is known (World::Wish).
void Follow::NoteStored() {
  world_.stored.assign(stored_.begin(), stored_.end());
  for (const HeldBlock& arrival : stored_) {
    BlockFacts& facts = world_.ledgers[arrival.window][arrival.id];
    facts.priority = kDefaultPriority;
    facts.duration = absl::InfiniteDuration();
    facts.deadline = absl::InfiniteFuture();
  }
}

// A sequence publishes nothing if its last published block is no longer in the tree.
void Follow::NoteDetached() {
  for (SimSession& session : world_.sessions) {
    for (SimSequence& sequence : session.sequences) {
      if (!sequence.running || &sequence == scope_.cuts) continue;
      for (uint32_t w = 0; w < world_.num_windows(); ++w) {
        SimTable& table = sequence.tables[w];
        if (table.detached || table.tip == kNoBlock ||
            world_.shadows[w].node(table.tip.value()).in_tree()) {
          continue;
        }
        table.detached = true;
        world_.coverage.Add(Met::kDetached);
      }
    }
  }
}

}  // namespace pagoda::sim

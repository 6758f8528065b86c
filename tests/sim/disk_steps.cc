#include "tests/sim/disk_steps.h"

#include <algorithm>
#include <utility>

#include "manager/warm_restart.h"
#include "tests/sim/operations.h"
#include "tests/sim/world.h"

namespace pagoda::sim {
namespace {

// The most commands that can be on their way at the end of a run: each backup that ends can cause
// another.
constexpr uint32_t kMostAtTheEnd = 100'000;

std::vector<Value> PathOf(const World& world, uint32_t window, uint32_t id) {
  std::vector<uint32_t> blocks;
  for (uint32_t block = id; block != kNone; block = world.shadows[window].node(block).parent) {
    blocks.push_back(block);
  }
  std::vector<Value> path;
  for (size_t i = blocks.size(); i-- > 0;) {
    const Node& node = world.shadows[window].node(blocks[i]);
    path.insert(path.end(), node.values.begin(), node.values.begin() + node.count);
  }
  return path;
}

// Whether the slot belongs to a block that is cached or held.
bool HasBlock(World& world, uint32_t window, SlotRef slot) {
  const uint32_t owner = world.ledgers[window].owner(slot);
  return owner != kNone &&
         (world.shadows[window].node(owner).cached() || world.ledgers[window][owner].refs > 0);
}

void CheckBackup(World& world, const Order& order) {
  const uint32_t w = order.window_index;
  const SlotContent& content = *order.content;
  const Node& node = world.shadows[w].node(content.block.id.value());
  SIM_CHECK(!HasBlock(world, w, order.file()), "backup ", order.ticket.value(), " goes to slot ",
            order.file().slot.value(), " of the file, which has a block");
  SIM_CHECK(
      order.memory().slot.value() >= world.config.plain_slots_in(w, world.config.above_disk()),
      "D6: backup ", order.ticket.value(), " reads another slot than a staging slot");
  const DiskOrders::Backup* backup = world.on_order.BackupOf(w, content.block.id.value());
  if (backup == nullptr || backup->ticket != order.ticket) return;  // It has left since.
  const std::vector<TokenId> tokens = TokensOf(content.key(), world.config.tokens_per_block);
  bool same =
      tokens.size() == node.count && content.priority == node.priority &&
      content.parent.id.value() == node.parent &&
      (node.parent != kNone || content.name_space == world.config.name_spaces[node.name_space]);
  for (uint32_t i = 0; i < node.count && same; ++i) {
    same = node.keys[i] ==
           (content.extras.empty() ? KeyOf(tokens[i]) : KeyOf(tokens[i], content.extras[i]));
  }
  SIM_CHECK(same, "backup ", order.ticket.value(), " says something else of block ",
            content.block.id.value());
  if (node.parent == kNone) {
    SIM_CHECK(order.parent == kNoSlot, "a first block names a parent's slot");
    return;
  }
  const DiskOrders::Backup* above = world.on_order.BackupOf(w, node.parent);
  const SlotIndex there = world.CopyOnDisk(w, node.parent);
  SIM_CHECK(
      order.parent != kNoSlot &&
          (order.parent == there || (above != nullptr && above->ticket != Ticket{} &&
                                     above->ticket < order.ticket && above->file == order.parent)),
      "backup ", order.ticket.value(), " of block ", content.block.id.value(),
      " is ordered before its parent");
}

void NoteFile(World& world, const Order& order, const Scope& scope) {
  const uint32_t w = order.window_index;
  switch (order.kind) {
    case Order::Kind::kErase:
    case Order::Kind::kEraseAll:
      if (world.Note()) {
        world.Note(Text("    erase ", order.ticket, " of window ", w, ": ",
                        order.kind == Order::Kind::kEraseAll ? "all" : ""));
        for (const SlotIndex slot : order.slots) world.Note(Text("      slot ", slot));
      }
      world.on_order.AddErase(order);
      world.files.Erase(order);
      if (order.kind == Order::Kind::kEraseAll) {
        world.files.Condemn(w, std::nullopt, order.ticket);
      }
      return;
    case Order::Kind::kDrop:
      if (world.Note()) {
        world.Note(Text("    drop of slot ", order.target.slot, " of the file of window ", w));
      }
      world.files.Drop(order);
      return;
    case Order::Kind::kMove:
      break;
  }
  SIM_CHECK(w < world.num_windows() && world.config.has_disk_in(w) &&
                order.memory().tier == world.config.above_disk() &&
                order.file().tier == world.config.disk() &&
                order.file().slot.value() < world.config.slots_in(w, world.config.disk()),
            "file order ", order.ticket.value(), " names slots that do not exist");
  if (world.Note()) {
    world.Note(Text("    ", order.lane == Lane::kFetch ? "fetch " : "backup ", order.ticket,
                    " of window ", w, ": memory slot ", order.memory().slot, ", file slot ",
                    order.file().slot, ", below ", order.parent, ", after ", order.after[0]));
  }
  if (order.lane == Lane::kFetch) {
    const uint32_t id = world.ledgers[w].owner(order.file());
    SIM_CHECK(id != kNone, "fetch ", order.ticket.value(), " reads a slot without a block");
    world.on_order.AddFetch(order, id, scope.fetch_deadline);
    world.files.Fetch(order);
  } else {
    SIM_CHECK(order.content != nullptr, "a backup of nothing");
    const uint32_t id = world.on_order.Submit(order).id;
    world.files.Backup(order, world.shadows[w].node(id).name_space, PathOf(world, w, id));
  }
}

// --- The reports ---

void EndErase(World& world, const Disk::Ended& ended) {
  const DiskOrders::EndedErase erase = world.on_order.EraseEnded(ended.ticket, ended.status);
  if (erase.end == DiskOrders::EraseEnd::kDone) world.coverage.Add(Met::kErased);
  if (erase.end == DiskOrders::EraseEnd::kGivenUp) {
    for (const Ticket ticket : erase.tickets) world.files.Pardon(ended.window, ticket);
  }
  world.core->Complete(ended.lane, ended.ticket, ended.status, world.now);
  world.Absorb({.reasons = Bit(RemovalReason::kDisplaced), .orders_backups = true});
  SIM_CHECK(world.on_order.AllTriedAgain(), "erase ", ended.ticket.value(),
            " failed, and is not tried again");
}

void EndBackup(World& world, const Disk::Ended& ended) {
  const uint32_t w = ended.window;
  const DiskOrders::Backup backup = world.on_order.BackupEnded(ended.ticket, ended.status);
  Scope scope{.reasons = Bit(RemovalReason::kDisplaced), .orders_backups = true};
  if (!ended.status.ok()) world.coverage.Add(Met::kBackupFailed);
  const bool attaches = ended.status.ok() && !backup.left;
  const SlotRef slot{world.config.disk(), ended.file};
  if (attaches) {
    scope.backed_up = HeldBlock{w, BlockId{backup.id}};
    world.ledgers[w].AddCopy(backup.id, slot);
    ++world.on_order.stats(w).backups;
  }
  world.core->Complete(ended.lane, ended.ticket, ended.status, world.now);
  world.Absorb(scope);
  if (!attaches) return;
  const Node& node = world.shadows[w].node(backup.id);
  if (node.cached() && node.lower.contains(world.config.disk())) return;
  // The disk can have given the copy up again at once for another block.
  world.ledgers[w].RemoveCopy(backup.id, slot);
  SIM_CHECK(world.files.core_write(w, ended.file) == 0, "block ", backup.id,
            " does not get the copy that was written");
}

// Whether a block that was read becomes usable: it still lies on disk alone in that slot, its
// parent is in memory, and its tenant's quota allows it.
bool ComesUp(World& world, uint32_t window, const DiskOrders::Fetch& fetch, const Scope& scope) {
  const Node& node = world.shadows[window].node(fetch.id);
  if (fetch.left || !world.IsOnlyOnDisk(window, fetch.id)) return false;
  if (world.CopyOnDisk(window, fetch.id) != fetch.file) return false;
  const auto is_up = [&](uint32_t id) {
    return std::any_of(scope.fetched.begin(), scope.fetched.end(), [&](const Scope::Fetched& one) {
      return one.block == HeldBlock{window, BlockId{id}};
    });
  };
  if (world.full(window) && node.parent != kNone && !is_up(node.parent) &&
      world.IsOnlyOnDisk(window, node.parent)) {
    return false;
  }
  const TenantId owner = world.config.OwnerOf(node.name_space);
  const uint32_t quota = world.config.quota(owner, world.config.above_disk());
  if (quota == kNoQuota) return true;
  uint32_t charged = world.accountants[window].charged(world.config.above_disk(), owner);
  for (const Scope::Fetched& one : scope.fetched) {
    const Node& other = world.shadows[window].node(one.block.id.value());
    charged += world.config.OwnerOf(other.name_space) == owner ? 1 : 0;
  }
  return charged < quota;
}

void EndFetch(World& world, const Disk::Ended& ended) {
  const uint32_t w = ended.window;
  Scope scope{.reasons = Bit(RemovalReason::kLost)};
  DiskOrders::Job& job = world.on_order.FetchEnded(ended.ticket, ended.status);
  const DiskOrders::Fetch fetch =
      *std::find_if(job.fetches.begin(), job.fetches.end(),
                    [&](const DiskOrders::Fetch& one) { return one.ticket == ended.ticket; });
  const bool fails = !ended.status.ok() && !absl::IsCancelled(ended.status);
  if (fails) world.coverage.Add(Met::kFetchFailed);
  const bool loses = fails && !fetch.left && world.CopyOnDisk(w, fetch.id) == fetch.file;
  const uint64_t late_before = world.on_order.stats(w).late_fetches;
  world.on_order.Advance(
      job,
      [&](const DiskOrders::Fetch& one) {
        if (!ComesUp(world, w, one, scope)) return false;
        scope.fetched.push_back({{w, BlockId{one.id}}, one.memory});
        return true;
      },
      // A sequence can have computed it meanwhile.
      [&](const DiskOrders::Fetch& one) {
        return !one.left && world.shadows[w].node(one.id).cached() &&
               !world.IsOnlyOnDisk(w, one.id);
      });
  world.on_order.CloseJobs();
  world.coverage.Add(Met::kFetchLate, world.on_order.stats(w).late_fetches - late_before);
  world.core->Complete(ended.lane, ended.ticket, ended.status, world.now);
  world.Absorb(scope);
  for (const Scope::Fetched& one : scope.fetched) {
    SIM_CHECK(world.shadows[w].node(one.block.id.value()).tier == world.config.above_disk(),
              "block ", one.block.id.value(), " was fetched, and does not come up");
  }
  SIM_CHECK(!loses || world.CopyOnDisk(w, fetch.id) != fetch.file ||
                !world.shadows[w].node(fetch.id).cached(),
            "block ", fetch.id, " keeps a copy on disk that could not be read");
}

bool EndOneFile(World& world) {
  const std::optional<Disk::Ended> ended = world.files.EndOne(world.random, world.memory);
  if (!ended.has_value()) return false;
  if (world.Note()) {
    world.Note(Text("    ", ended->lane == Lane::kFetch ? "fetch " : "backup ", ended->ticket,
                    " of window ", ended->window, ": ", ended->status.ToString()));
  }
  world.ApplyTime();
  if (ended->is_erase) {
    EndErase(world, *ended);
  } else {
    ended->lane == Lane::kFetch ? EndFetch(world, *ended) : EndBackup(world, *ended);
  }
  world.Check();
  return true;
}

}  // namespace

bool World::IsDiskCandidate(uint32_t window, uint32_t id) {
  const Shadow& shadow = shadows[window];
  const Node& node = shadow.node(id);
  const SlotIndex slot = CopyOnDisk(window, id);
  if (!node.cached() || slot == kNoSlot || on_order.IsRead(window, slot)) return false;
  if (config.IsOnDisk(node.tier) && ledgers[window][id].refs > 0) return false;
  for (uint32_t c = node.first_child; c != kNone; c = shadow.node(c).next_sibling) {
    if (!shadow.node(c).cached()) continue;
    if (CopyOnDisk(window, c) != kNoSlot || on_order.BackupOf(window, c) != nullptr) return false;
  }
  return true;
}

// --- The core's orders ---

void NoteFiles(World& world, const std::vector<Order>& orders, const Scope& scope) {
  for (const Order& order : orders) NoteFile(world, order, scope);
  world.on_order.EndCall();
}

void CheckFiles(World& world, const std::vector<Order>& orders) {
  for (const Order& order : orders) {
    const uint32_t w = order.window_index;
    if (order.kind == Order::Kind::kDrop) {
      SIM_CHECK(!world.on_order.IsBusy(w, order.target.slot), "slot ", order.target.slot.value(),
                " of the file is dropped while it is in use");
    } else if (order.kind != Order::Kind::kMove) {
      for (const SlotIndex slot : order.slots) {
        SIM_CHECK(!HasBlock(world, w, {world.config.disk(), slot}), "slot ", slot.value(),
                  " of the file is erased, and has a block");
      }
    } else if (order.lane == Lane::kFetch) {
      SIM_CHECK(!world.config.IsStaging(w, order.memory()) && !HasBlock(world, w, order.memory()),
                "D6: fetch ", order.ticket.value(), " fills slot ", order.memory().slot.value(),
                ", which is not its own");
    } else {
      CheckBackup(world, order);
    }
  }
}

void FollowDroppedBackups(World& world, uint32_t window) {
  while (const std::optional<DiskOrders::Backup> dropped = world.on_order.TakeDropped(window)) {
    const Node& node = world.shadows[window].node(dropped->id);
    const auto has_parent_there = [&] {
      if (node.parent == kNone || world.CopyOnDisk(window, node.parent) != kNoSlot) return true;
      // A copy that was ordered later comes later.
      const DiskOrders::Backup* above = world.on_order.BackupOf(window, node.parent);
      return above != nullptr && above->ticket != Ticket{} && above->copy < dropped->copy;
    };
    SIM_CHECK(dropped->failed || dropped->left || !has_parent_there(), "the backup of block ",
              dropped->id, " is given up for no reason");
  }
  world.Check();
}

bool ExpireFetches(World& world) {
  const auto late = [&] {
    uint64_t sum = 0;
    for (uint32_t w = 0; w < world.num_windows(); ++w) sum += world.on_order.stats(w).late_fetches;
    return sum;
  };
  const uint64_t before = late();
  const bool any = world.on_order.Expire(world.now);
  world.coverage.Add(Met::kFetchLate, late() - before);
  return any;
}

// --- A restart ---

// Every block of the file comes back if its parent came back too or was in memory. Exceptions:
// tails next to longer blocks, and blocks above their tenant's quota.
void RestoreDisk(World& world, const std::vector<RecoveredWindow>& windows) {
  const absl::StatusOr<uint64_t> restored = world.core->restart().RestoreDisk(windows, world.now);
  SIM_CHECK(restored.ok(), "RestoreDisk: ", restored.status().ToString());
  world.Absorb(
      {.reasons = Bit(RemovalReason::kTakenOver), .restores = true, .found_on_disk = &windows});
  for (const HeldBlock& block : world.stored) {
    const SlotIndex slot = world.CopyOnDisk(block.window, block.id.value());
    world.Wish(block.window, block.id.value(),
               {.priority = world.files.written(block.window, slot).content.priority});
  }
  world.stored.clear();
  world.CountHolders();
  const auto is_at_quota = [&](uint32_t w, uint32_t name_space) {
    const TenantId owner = world.config.OwnerOf(name_space);
    return world.accountants[w].charged(world.config.disk(), owner) >=
           world.config.quota(owner, world.config.disk());
  };
  uint64_t there = 0;
  for (uint32_t w = 0; w < world.num_windows(); ++w) {
    const std::vector<RecoveredBlock>& blocks = windows[w].blocks;
    std::vector<uint32_t> ids(blocks.size(), kNone);
    for (size_t i = 0; i < blocks.size(); ++i) {
      const bool is_first = blocks[i].parent == RecoveredBlock::kRoot;
      const uint32_t parent = is_first ? kNone : ids[blocks[i].parent];
      if (!is_first && parent == kNone) continue;
      const Disk::Written& written = world.files.written(w, blocks[i].slot.slot);
      std::vector<TokenKey> keys;
      const SlotContent& content = written.content;
      const std::vector<TokenId> tokens = TokensOf(content.key(), world.config.tokens_per_block);
      for (size_t t = 0; t < tokens.size(); ++t) {
        keys.push_back(content.extras.empty() ? KeyOf(tokens[t])
                                              : KeyOf(tokens[t], content.extras[t]));
      }
      uint32_t name_space = is_first ? 0 : world.shadows[w].node(parent).name_space;
      while (is_first && world.config.name_spaces[name_space] != blocks[i].name_space) ++name_space;
      ids[i] = world.shadows[w].FindChild(parent, name_space, keys);
      const bool in_longer = world.shadows[w].FirstLonger(parent, name_space, keys) != kNone;
      SIM_CHECK(ids[i] != kNone || in_longer || is_at_quota(w, name_space), "what slot ",
                blocks[i].slot.slot.value(), " of the file has is not found again");
      if (ids[i] == kNone) continue;
      SIM_CHECK(world.CopyOnDisk(w, ids[i]) == blocks[i].slot.slot, "block ", ids[i],
                " does not get the copy that was found in slot ", blocks[i].slot.slot.value());
      ++there;
    }
  }
  SIM_CHECK(*restored >= there, "RestoreDisk says ", *restored, " copies; there are ", there);
}

// --- Steps and checks ---

void DiskStep(World& world, uint32_t index) {
  world.random = Random(world.config.seed, (uint64_t{1} << 42) + index);
  world.files.BeginSome(world.random, world.config.file_haste_percent, world.memory);
  if (world.random.Percent(world.config.maintain_percent)) MaintainOp(world);
  if (world.random.OneIn(6)) PrefetchOp(world);
  if (!world.random.Percent(world.config.file_haste_percent)) return;
  for (uint32_t i = world.random.Between(1, 3); i > 0 && EndOneFile(world); --i) {
  }
  if (!world.random.OneIn(16)) return;
  // A ticket that was never given, or was reported already.
  const Lane lane = world.random.OneIn(2) ? Lane::kFetch : Lane::kBackup;
  const Ticket unknown{world.on_order.last(lane).value() + world.random.Below(2) * 1'000'000 + 1};
  world.core->Complete(lane, unknown, absl::DataLossError("sim"), world.now);
  world.Absorb({});
  world.Check();
}

void FinishDisk(World& world) {
  uint32_t steps = 0;
  for (Ticket ticket;; ++steps) {
    SIM_CHECK(steps < kMostAtTheEnd, "backups go on and on");
    if (world.memory.PickStarted(world.random, &ticket)) {
      world.EndOneCopy(ticket);
    } else if (!EndOneFile(world)) {
      break;
    }
  }
  SIM_CHECK(world.files.pending() == 0 && world.on_order.backups().empty() &&
                world.on_order.jobs().empty(),
            "something is on its way to or from a disk that nobody waits for");
}

// A slot of the file belongs to a block, and the file has that block's bytes. Otherwise the slot is
// in use, or the core has given it up.
void CheckDisk(World& world, uint32_t window) {
  world.files.CheckErased(window, world.on_order.completed(Lane::kBackup));
  for (uint32_t s = 0; s < world.config.slots_in(window, world.config.disk()); ++s) {
    const SlotIndex slot{s};
    const uint32_t owner = world.ledgers[window].owner({world.config.disk(), slot});
    if (owner != kNone && world.shadows[window].node(owner).cached()) {
      SIM_CHECK(world.files.HoldsOf(window, slot), "block ", owner, " is not in slot ", s,
                " of the file, where its copy is");
      continue;
    }
    SIM_CHECK(world.core->resetting() || world.on_order.IsBusy(window, slot) ||
                  world.files.core_write(window, slot) == 0,
              "slot ", s, " of the file was let go, and the carrier does not know");
  }
}

}  // namespace pagoda::sim

// The disk of a world: the core's orders, the reports to it, and the blocks that a restart finds on
// it.
#include <algorithm>
#include <utility>
#include <variant>

#include "tests/sim/operations.h"
#include "tests/sim/world.h"

namespace pagoda::sim {
namespace {

// The most commands that can be on their way at the end of a run: each backup that ends can cause
// another.
constexpr uint32_t kMostAtTheEnd = 100'000;

}  // namespace

std::vector<Value> World::PathOf(uint32_t window, uint32_t id) const {
  std::vector<uint32_t> blocks;
  for (uint32_t block = id; block != kNone; block = shadows[window].node(block).parent) {
    blocks.push_back(block);
  }
  std::vector<Value> path;
  for (size_t i = blocks.size(); i-- > 0;) {
    const Node& node = shadows[window].node(blocks[i]);
    path.insert(path.end(), node.values.begin(), node.values.begin() + node.count);
  }
  return path;
}

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

// Called before the call's events are applied: they can say that a block has left since.
void World::NoteFiles(const FileCommands& commands, const Scope& scope) {
  for (const FileCommand& command : commands) {
    digest.Add(command);
    if (const auto* erase = std::get_if<FileErase>(&command)) {
      if (Note()) {
        Note(Text("    erase ", erase->ticket, " of window ", erase->window_index, ": ",
                  erase->what == FileErase::What::kAll ? "all" : ""));
        for (const SlotIndex slot : erase->slots) Note(Text("      slot ", slot));
      }
      on_order.AddErase(*erase);
      files.Erase(*erase);
      if (erase->what == FileErase::What::kAll) {
        files.Condemn(erase->window_index, std::nullopt, erase->ticket);
      }
    } else if (const auto* drop = std::get_if<FileDrop>(&command)) {
      if (Note()) {
        Note(Text("    drop of slot ", drop->slot, " of the file of window ", drop->window_index));
      }
      files.Drop(*drop);
    } else {
      const auto& order = std::get<FileOrder>(command);
      const uint32_t w = order.window_index;
      SIM_CHECK(w < num_windows() && config.has_disk_in(w) &&
                    order.memory.tier == config.above_disk() && order.file.tier == config.disk() &&
                    order.file.slot.value() < config.slots_in(w, config.disk()),
                "file order ", order.ticket.value(), " names slots that do not exist");
      if (Note()) {
        Note(Text("    ", order.lane == Lane::kFetch ? "fetch " : "backup ", order.ticket,
                  " of window ", w, ": memory slot ", order.memory.slot, ", file slot ",
                  order.file.slot, ", below ", order.parent_file, ", after ", order.after));
      }
      if (order.lane == Lane::kFetch) {
        const uint32_t id = ledgers[w].owner(order.file);
        SIM_CHECK(id != kNone, "fetch ", order.ticket.value(), " reads a slot without a block");
        on_order.AddFetch(order, id, scope.fetch_deadline);
        files.Fetch(order);
      } else {
        SIM_CHECK(order.content.has_value(), "a backup of nothing");
        const uint32_t id = on_order.Submit(order).id;
        files.Backup(order, shadows[w].node(id).name_space, PathOf(w, id));
      }
    }
  }
  on_order.EndCall();
}

// Whether the slot belongs to a block that is cached or held.
bool World::HasBlock(uint32_t window, SlotRef slot) {
  const uint32_t owner = ledgers[window].owner(slot);
  return owner != kNone &&
         (shadows[window].node(owner).cached() || ledgers[window][owner].refs > 0);
}

// After its events.
void World::CheckFiles(const FileCommands& commands) {
  for (const FileCommand& command : commands) {
    if (const auto* erase = std::get_if<FileErase>(&command)) {
      for (const SlotIndex slot : erase->slots) {
        SIM_CHECK(!HasBlock(erase->window_index, {config.disk(), slot}), "slot ", slot.value(),
                  " of the file is erased, and has a block");
      }
    } else if (const auto* drop = std::get_if<FileDrop>(&command)) {
      SIM_CHECK(!on_order.IsBusy(drop->window_index, drop->slot), "slot ", drop->slot.value(),
                " of the file is dropped while it is in use");
    } else if (const auto& order = std::get<FileOrder>(command); order.lane == Lane::kFetch) {
      SIM_CHECK(!config.IsStaging(order.window_index, order.memory) &&
                    !HasBlock(order.window_index, order.memory),
                "D6: fetch ", order.ticket.value(), " fills slot ", order.memory.slot.value(),
                ", which is not its own");
    } else {
      CheckBackup(order);
    }
  }
}

void World::CheckBackup(const FileOrder& order) {
  const uint32_t w = order.window_index;
  const SlotContent& content = *order.content;
  const Node& node = shadows[w].node(content.block.id.value());
  SIM_CHECK(!HasBlock(w, order.file), "backup ", order.ticket.value(), " goes to slot ",
            order.file.slot.value(), " of the file, which has a block");
  SIM_CHECK(order.memory.slot.value() >= config.plain_slots_in(w, config.above_disk()),
            "D6: backup ", order.ticket.value(), " reads another slot than a staging slot");
  const DiskOrders::Backup* backup = on_order.BackupOf(w, content.block.id.value());
  if (backup == nullptr || backup->ticket != order.ticket) return;  // It has left since.
  const std::vector<TokenId> tokens = TokensOf(content.key(), config.tokens_per_block);
  bool same = tokens.size() == node.count && content.priority == node.priority &&
              content.parent.id.value() == node.parent &&
              (node.parent != kNone || content.name_space == config.name_spaces[node.name_space]);
  for (uint32_t i = 0; i < node.count && same; ++i) {
    same = node.keys[i] ==
           (content.extras.empty() ? KeyOf(tokens[i]) : KeyOf(tokens[i], content.extras[i]));
  }
  SIM_CHECK(same, "backup ", order.ticket.value(), " says something else of block ",
            content.block.id.value());
  if (node.parent == kNone) {
    SIM_CHECK(order.parent_file == kNoSlot, "a first block names a parent's slot");
    return;
  }
  const DiskOrders::Backup* above = on_order.BackupOf(w, node.parent);
  const SlotIndex there = CopyOnDisk(w, node.parent);
  SIM_CHECK(order.parent_file != kNoSlot &&
                (order.parent_file == there ||
                 (above != nullptr && above->ticket != Ticket{} && above->ticket < order.ticket &&
                  above->file == order.parent_file)),
            "backup ", order.ticket.value(), " of block ", content.block.id.value(),
            " is ordered before its parent");
}

// Backups that the end of a copy should have ordered, and did not.
void World::FollowDroppedBackups(uint32_t window) {
  while (const std::optional<DiskOrders::Backup> dropped = on_order.TakeDropped(window)) {
    const Node& node = shadows[window].node(dropped->id);
    const auto has_parent_there = [&] {
      if (node.parent == kNone || CopyOnDisk(window, node.parent) != kNoSlot) return true;
      // A copy that was ordered later comes later.
      const DiskOrders::Backup* above = on_order.BackupOf(window, node.parent);
      return above != nullptr && above->ticket != Ticket{} && above->copy < dropped->copy;
    };
    SIM_CHECK(dropped->failed || dropped->left || !has_parent_there(), "the backup of block ",
              dropped->id, " is given up for no reason");
  }
  Check();
}

// --- The reports ---

bool World::EndOneFile() {
  const std::optional<Disk::Ended> ended = files.EndOne(random, memory);
  if (!ended.has_value()) return false;
  if (Note()) {
    Note(Text("    ", ended->lane == Lane::kFetch ? "fetch " : "backup ", ended->ticket,
              " of window ", ended->window, ": ", ended->status.ToString()));
  }
  ApplyTime();
  if (ended->is_erase) {
    EndErase(*ended);
  } else {
    ended->lane == Lane::kFetch ? EndFetch(*ended) : EndBackup(*ended);
  }
  Check();
  return true;
}

void World::EndErase(const Disk::Ended& ended) {
  const DiskOrders::EndedErase erase = on_order.EraseEnded(ended.ticket, ended.status);
  if (erase.end == DiskOrders::EraseEnd::kDone) coverage.Add(Met::kErased);
  if (erase.end == DiskOrders::EraseEnd::kGivenUp) {
    for (const Ticket ticket : erase.tickets) files.Pardon(ended.window, ticket);
  }
  core->CompleteFile(ended.lane, ended.ticket, ended.status, now);
  Absorb({.reasons = Bit(RemovalReason::kDisplaced), .orders_backups = true});
  SIM_CHECK(on_order.AllTriedAgain(), "erase ", ended.ticket.value(),
            " failed, and is not tried again");
}

void World::EndBackup(const Disk::Ended& ended) {
  const uint32_t w = ended.window;
  const DiskOrders::Backup backup = on_order.BackupEnded(ended.ticket, ended.status);
  Scope scope{.reasons = Bit(RemovalReason::kDisplaced), .orders_backups = true};
  if (!ended.status.ok()) coverage.Add(Met::kBackupFailed);
  const bool attaches = ended.status.ok() && !backup.left;
  const SlotRef slot{config.disk(), ended.file};
  if (attaches) {
    scope.backed_up = HeldBlock{w, BlockId{backup.id}};
    ledgers[w].AddCopy(backup.id, slot);
    ++on_order.stats(w).backups;
  }
  core->CompleteFile(ended.lane, ended.ticket, ended.status, now);
  Absorb(scope);
  if (!attaches) return;
  const Node& node = shadows[w].node(backup.id);
  if (node.cached() && node.lower.contains(config.disk())) return;
  // The disk can have given the copy up again at once for another block.
  ledgers[w].RemoveCopy(backup.id, slot);
  SIM_CHECK(files.core_write(w, ended.file) == 0, "block ", backup.id,
            " does not get the copy that was written");
}

// Whether a block that was read becomes usable: it still lies on disk alone in that slot, its
// parent is in memory, and its tenant's quota allows it.
bool World::ComesUp(uint32_t window, const DiskOrders::Fetch& fetch, const Scope& scope) {
  const Node& node = shadows[window].node(fetch.id);
  if (fetch.left || !IsOnlyOnDisk(window, fetch.id)) return false;
  if (CopyOnDisk(window, fetch.id) != fetch.file) return false;
  const auto is_up = [&](uint32_t id) {
    return std::any_of(scope.fetched.begin(), scope.fetched.end(), [&](const Scope::Fetched& one) {
      return one.block == HeldBlock{window, BlockId{id}};
    });
  };
  if (full(window) && node.parent != kNone && !is_up(node.parent) &&
      IsOnlyOnDisk(window, node.parent)) {
    return false;
  }
  const TenantId owner = config.OwnerOf(node.name_space);
  const uint32_t quota = config.quota(owner, config.above_disk());
  if (quota == kNoQuota) return true;
  uint32_t charged = accountants[window].charged(config.above_disk(), owner);
  for (const Scope::Fetched& one : scope.fetched) {
    const Node& other = shadows[window].node(one.block.id.value());
    charged += config.OwnerOf(other.name_space) == owner ? 1 : 0;
  }
  return charged < quota;
}

void World::EndFetch(const Disk::Ended& ended) {
  const uint32_t w = ended.window;
  Scope scope{.reasons = Bit(RemovalReason::kLost)};
  DiskOrders::Job& job = on_order.FetchEnded(ended.ticket, ended.status);
  const DiskOrders::Fetch fetch =
      *std::find_if(job.fetches.begin(), job.fetches.end(),
                    [&](const DiskOrders::Fetch& one) { return one.ticket == ended.ticket; });
  const bool fails = !ended.status.ok() && !absl::IsCancelled(ended.status);
  if (fails) coverage.Add(Met::kFetchFailed);
  const bool loses = fails && !fetch.left && CopyOnDisk(w, fetch.id) == fetch.file;
  const uint64_t late_before = on_order.stats(w).late_fetches;
  on_order.Advance(
      job,
      [&](const DiskOrders::Fetch& one) {
        if (!ComesUp(w, one, scope)) return false;
        scope.fetched.push_back({{w, BlockId{one.id}}, one.memory});
        return true;
      },
      // A sequence can have computed it meanwhile.
      [&](const DiskOrders::Fetch& one) {
        return !one.left && shadows[w].node(one.id).cached() && !IsOnlyOnDisk(w, one.id);
      });
  on_order.CloseJobs();
  coverage.Add(Met::kFetchLate, on_order.stats(w).late_fetches - late_before);
  core->CompleteFile(ended.lane, ended.ticket, ended.status, now);
  Absorb(scope);
  for (const Scope::Fetched& one : scope.fetched) {
    SIM_CHECK(shadows[w].node(one.block.id.value()).tier == config.above_disk(), "block ",
              one.block.id.value(), " was fetched, and does not come up");
  }
  SIM_CHECK(!loses || CopyOnDisk(w, fetch.id) != fetch.file || !shadows[w].node(fetch.id).cached(),
            "block ", fetch.id, " keeps a copy on disk that could not be read");
}

// Gives up the fetches whose deadline is over. Returns whether there were any.
bool World::ExpireFetches() {
  const auto late = [&] {
    uint64_t sum = 0;
    for (uint32_t w = 0; w < num_windows(); ++w) sum += on_order.stats(w).late_fetches;
    return sum;
  };
  const uint64_t before = late();
  const bool any = on_order.Expire(now);
  coverage.Add(Met::kFetchLate, late() - before);
  return any;
}

// --- A restart ---

// Every block of the file comes back if its parent came back too or was in memory. Exceptions:
// tails beside longer blocks, and blocks above their tenant's quota.
void World::RestoreDisk(const std::vector<RecoveredWindow>& windows) {
  const absl::StatusOr<uint64_t> restored = core->RestoreDisk(windows, now);
  SIM_CHECK(restored.ok(), "RestoreDisk: ", restored.status().ToString());
  Absorb({.reasons = Bit(RemovalReason::kTakenOver), .restores = true, .found_on_disk = &windows});
  for (const HeldBlock& block : stored) {
    const SlotIndex slot = CopyOnDisk(block.window, block.id.value());
    Wish(block.window, block.id.value(),
         {.priority = files.written(block.window, slot).content.priority});
  }
  stored.clear();
  CountHolders();
  const auto is_at_quota = [&](uint32_t w, uint32_t name_space) {
    const TenantId owner = config.OwnerOf(name_space);
    return accountants[w].charged(config.disk(), owner) >= config.quota(owner, config.disk());
  };
  uint64_t there = 0;
  for (uint32_t w = 0; w < num_windows(); ++w) {
    const std::vector<RecoveredBlock>& blocks = windows[w].blocks;
    std::vector<uint32_t> ids(blocks.size(), kNone);
    for (size_t i = 0; i < blocks.size(); ++i) {
      const bool is_first = blocks[i].parent == RecoveredBlock::kRoot;
      const uint32_t parent = is_first ? kNone : ids[blocks[i].parent];
      if (!is_first && parent == kNone) continue;
      const Disk::Written& written = files.written(w, blocks[i].slot.slot);
      std::vector<TokenKey> keys;
      const SlotContent& content = written.content;
      const std::vector<TokenId> tokens = TokensOf(content.key(), config.tokens_per_block);
      for (size_t t = 0; t < tokens.size(); ++t) {
        keys.push_back(content.extras.empty() ? KeyOf(tokens[t])
                                              : KeyOf(tokens[t], content.extras[t]));
      }
      uint32_t name_space = is_first ? 0 : shadows[w].node(parent).name_space;
      while (is_first && config.name_spaces[name_space] != blocks[i].name_space) ++name_space;
      ids[i] = shadows[w].FindChild(parent, name_space, keys);
      const bool in_longer = shadows[w].FirstLonger(parent, name_space, keys) != kNone;
      SIM_CHECK(ids[i] != kNone || in_longer || is_at_quota(w, name_space), "what slot ",
                blocks[i].slot.slot.value(), " of the file has is not found again");
      if (ids[i] == kNone) continue;
      SIM_CHECK(CopyOnDisk(w, ids[i]) == blocks[i].slot.slot, "block ", ids[i],
                " does not get the copy that was found in slot ", blocks[i].slot.slot.value());
      ++there;
    }
  }
  SIM_CHECK(*restored >= there, "RestoreDisk says ", *restored, " copies; there are ", there);
}

// --- Steps and checks ---

void World::DiskStep(uint32_t index) {
  random = Random(config.seed, (uint64_t{1} << 42) + index);
  files.BeginSome(random, config.file_haste_percent, memory);
  if (random.Percent(config.maintain_percent)) MaintainOp(*this);
  if (random.OneIn(6)) PrefetchOp(*this);
  if (!random.Percent(config.file_haste_percent)) return;
  for (uint32_t i = random.Between(1, 3); i > 0 && EndOneFile(); --i) {
  }
  if (!random.OneIn(16)) return;
  // A ticket that was never given, or was reported already.
  const Lane lane = random.OneIn(2) ? Lane::kFetch : Lane::kBackup;
  const Ticket unknown{on_order.last(lane).value() + random.Below(2) * 1'000'000 + 1};
  core->CompleteFile(lane, unknown, absl::DataLossError("sim"), now);
  Absorb({});
  Check();
}

// Ends everything that is on its way.
void World::FinishDisk() {
  uint32_t steps = 0;
  for (Ticket ticket;; ++steps) {
    SIM_CHECK(steps < kMostAtTheEnd, "backups go on and on");
    if (memory.PickStarted(random, &ticket)) {
      EndOneCopy(ticket);
    } else if (!EndOneFile()) {
      break;
    }
  }
  SIM_CHECK(files.pending() == 0 && on_order.backups().empty() && on_order.jobs().empty(),
            "something is on its way to or from a disk that nobody waits for");
}

// A slot of the file belongs to a block, and the file has that block's bytes. Otherwise the slot is
// in use, or the core has given it up.
void World::CheckDisk(uint32_t window) {
  files.CheckErased(window, on_order.completed(Lane::kBackup));
  for (uint32_t s = 0; s < config.slots_in(window, config.disk()); ++s) {
    const SlotIndex slot{s};
    const uint32_t owner = ledgers[window].owner({config.disk(), slot});
    if (owner != kNone && shadows[window].node(owner).cached()) {
      SIM_CHECK(files.HoldsOf(window, slot), "block ", owner, " is not in slot ", s,
                " of the file, where its copy is");
      continue;
    }
    SIM_CHECK(
        core->resetting() || on_order.IsBusy(window, slot) || files.core_write(window, slot) == 0,
        "slot ", s, " of the file was let go, and the carrier does not know");
  }
}

}  // namespace pagoda::sim

#include "tests/sim/record/disk.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tests/sim/words/fail.h"

namespace pagoda::sim {
namespace {

constexpr uint32_t kMostRunning = 6;  // The most commands of one window and lane that run at once.

void Scribble(Random& random, Value* values, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) values[i] = random.Next();
}

bool BeginsWith(const Disk::Written& block, const std::optional<Disk::Prefix>& prefix) {
  if (!prefix.has_value()) return true;
  const std::vector<Value>& values = prefix->values;
  if (values.empty()) return block.name_space == prefix->name_space;
  return block.path.size() >= values.size() && block.path[values.size() - 1] == values.back();
}

}  // namespace

Disk::Disk(const SimConfig* config) : config_(config) {
  for (uint32_t w = 0; w < config->windows.size(); ++w) {
    if (config->has_disk) slots_[w].resize(config->slots_in(w, config->disk()));
  }
}

void Disk::Backup(const Order& order, uint32_t name_space, std::vector<Value> path) {
  Command command{.kind = Command::Kind::kBackup,
                  .ticket = order.ticket,
                  .window = order.window_index,
                  .memory = order.memory(),
                  .file = order.file().slot,
                  .after = order.after[0]};
  command.block.write = ++last_write_;
  command.block.content = *order.content;
  command.block.tokens_per_block = config_->tokens_per_block;
  command.block.name_space = name_space;
  command.block.path = std::move(path);
  if (order.parent != kNoSlot) {
    command.block.parent = At(order.window_index, order.parent).core_write;
    SIM_CHECK(command.block.parent != 0, "backup ", order.ticket.value(),
              " names a parent's slot in which the core has no block: ", order.parent.value());
  }
  At(order.window_index, order.file().slot).core_write = last_write_;
  commands_.push_back(std::move(command));
}

void Disk::Fetch(const Order& order) {
  commands_.push_back({.kind = Command::Kind::kFetch,
                       .ticket = order.ticket,
                       .window = order.window_index,
                       .memory = order.memory(),
                       .file = order.file().slot,
                       .after = order.after[0],
                       .block = {},
                       .write = At(order.window_index, order.file().slot).core_write});
  SIM_CHECK(commands_.back().write != 0, "fetch ", order.ticket.value(),
            " reads a slot in which the core has no block");
}

void Disk::Erase(const Order& erase) {
  std::vector<Slot>& slots = slots_[erase.window_index];
  const bool all = erase.kind == Order::Kind::kEraseAll;
  SIM_CHECK(!all || erase.slots.empty(), "an erase of everything names slots");
  for (const SlotIndex slot : erase.slots) slots.at(slot.value()).core_write = 0;
  Command command{.kind = Command::Kind::kErase,
                  .ticket = erase.ticket,
                  .window = erase.window_index,
                  .block = {},
                  .slots = {}};
  for (uint32_t s = 0; s < slots.size(); ++s) {
    if (all) slots[s].core_write = 0;
    if (slots[s].core_write == 0) command.slots.push_back(SlotIndex{s});
  }
  commands_.push_back(std::move(command));
}

void Disk::Drop(const Order& drop) { At(drop.window_index, drop.target.slot).core_write = 0; }

bool Disk::MayBegin(size_t index, const Memory& memory) const {
  const Command& command = commands_[index];
  if (memory.completed() < command.after) return false;
  uint32_t running = 0;
  for (size_t i = 0; i < index; ++i) {
    const Command& before = commands_[i];
    if (before.window != command.window || before.lane() != command.lane()) continue;
    ++running;
    if (command.kind == Command::Kind::kFetch) continue;
    if (!before.begun) return false;
    // An erase has its effect when it begins.
    if (command.kind == Command::Kind::kErase && before.kind == Command::Kind::kBackup)
      return false;
  }
  return running < kMostRunning;
}

void Disk::Begin(Command& command, Random& random, Memory& memory) {
  command.begun = true;
  command.early = random.OneIn(2);
  if (command.kind == Command::Kind::kErase) {
    command.fails = random.Below(1000) < config_->file_failure_permille;
    return Empty(command, random);
  }
  Value* const values = memory.slot(command.window, command.memory);
  if (command.kind == Command::Kind::kBackup) {
    if (command.early) std::copy_n(values, config_->tokens_per_block, command.block.bytes.begin());
    return;
  }
  // At first only a part of the bytes has arrived.
  if (command.early) {
    Read(command, memory);
  } else {
    Scribble(random, values, 1 + random.Below(config_->tokens_per_block));
  }
}

// No later command of its lane has begun.
void Disk::Empty(const Command& erase, Random& random) {
  for (const SlotIndex slot : erase.slots) {
    if (!erase.fails || random.OneIn(2)) At(erase.window, slot).now = {};
  }
}

void Disk::Read(const Command& fetch, Memory& memory) const {
  const Written& there = At(fetch.window, fetch.file).now;
  std::copy_n(there.bytes.begin(), config_->tokens_per_block,
              memory.slot(fetch.window, fetch.memory));
}

void Disk::BeginSome(Random& random, uint32_t percent, Memory& memory) {
  for (size_t i = 0; i < commands_.size(); ++i) {
    if (commands_[i].begun || !random.Percent(percent) || !MayBegin(i, memory)) continue;
    Begin(commands_[i], random, memory);
  }
}

std::optional<Disk::Ended> Disk::EndOne(Random& random, Memory& memory) {
  if (commands_.empty()) return std::nullopt;
  const size_t first = random.Below(static_cast<uint32_t>(commands_.size()));
  for (size_t n = 0; n < commands_.size(); ++n) {
    const size_t i = (first + n) % commands_.size();
    if (!commands_[i].begun && MayBegin(i, memory)) Begin(commands_[i], random, memory);
    Command& command = commands_[i];
    if (!command.begun) continue;
    Ended ended{.lane = command.lane(),
                .ticket = command.ticket,
                .window = command.window,
                .is_erase = command.kind == Command::Kind::kErase,
                .file = command.file};
    if (command.kind == Command::Kind::kBackup) ended.status = EndBackup(command, random, memory);
    if (command.kind == Command::Kind::kFetch) ended.status = EndFetch(command, random, memory);
    if (command.fails) ended.status = absl::UnavailableError("sim");
    commands_.erase(commands_.begin() + static_cast<ptrdiff_t>(i));
    return ended;
  }
  return std::nullopt;  // They wait for copies between memories.
}

absl::Status Disk::EndBackup(Command& backup, Random& random, Memory& memory) {
  Slot& slot = At(backup.window, backup.file);
  if (!backup.early) {
    std::copy_n(memory.slot(backup.window, backup.memory), config_->tokens_per_block,
                backup.block.bytes.begin());
  }
  const WriteNumber write = backup.block.write;
  if (random.Below(1000) >= config_->file_failure_permille) {
    slot.now = std::move(backup.block);
    return absl::OkStatus();
  }
  // The slot's content is unknown: the previous block, nothing, or the new block.
  if (slot.core_write == write) slot.core_write = 0;
  for (Command& other : commands_) {
    if (other.kind != Command::Kind::kErase || other.window != backup.window) continue;
    if (other.ticket > backup.ticket) other.slots.push_back(backup.file);
  }
  const uint32_t dice = random.Below(3);
  if (dice == 0) slot.now = {};
  if (dice == 1) slot.now = std::move(backup.block);
  switch (random.Below(8)) {
    case 0:
      return absl::CancelledError("sim");
    case 1:
    case 2:
      return absl::ResourceExhaustedError("sim");
    case 3:
      return absl::FailedPreconditionError("sim");
    case 4:
      return absl::OutOfRangeError("sim");
    default:
      return absl::UnavailableError("sim");
  }
}

absl::Status Disk::EndFetch(Command& fetch, Random& random, Memory& memory) {
  if (random.Below(1000) >= config_->file_failure_permille) {
    if (At(fetch.window, fetch.file).now.write != fetch.write) {
      Scribble(random, memory.slot(fetch.window, fetch.memory), config_->tokens_per_block);
      return absl::DataLossError("another block is there");
    }
    if (!fetch.early) Read(fetch, memory);
    return absl::OkStatus();
  }
  Scribble(random, memory.slot(fetch.window, fetch.memory), config_->tokens_per_block);
  const uint32_t dice = random.Below(4);
  if (dice == 0) return absl::CancelledError("sim");
  return dice == 1 ? absl::UnavailableError("sim") : absl::DataLossError("sim");
}

void Disk::Condemn(uint32_t window, const std::optional<Prefix>& prefix, Ticket erase) {
  for (Slot& slot : slots_[window]) {
    if (slot.now.write != 0 && BeginsWith(slot.now, prefix)) {
      slot.now.condemned.push_back(erase);
    }
  }
  for (Command& command : commands_) {
    if (command.kind == Command::Kind::kBackup && command.window == window &&
        BeginsWith(command.block, prefix)) {
      command.block.condemned.push_back(erase);
    }
  }
}

void Disk::CheckErased(uint32_t window, Ticket completed) const {
  for (size_t s = 0; s < slots_[window].size(); ++s) {
    for (const Ticket erase : slots_[window][s].now.condemned) {
      SIM_CHECK(erase > completed, "slot ", s, " of the file of window ",
                WindowName(config_->windows[window].size), " has what erase ", erase.value(),
                " has removed");
    }
  }
}

void Disk::Pardon(uint32_t window, Ticket erase) {
  for (Slot& slot : slots_[window]) std::erase(slot.now.condemned, erase);
  for (Command& command : commands_) std::erase(command.block.condemned, erase);
}

void Disk::Crash(Random& random) {
  for (Command& command : commands_) {
    if (!command.begun || command.kind != Command::Kind::kBackup) continue;
    Slot& slot = At(command.window, command.file);
    const uint32_t dice = random.Below(3);
    if (dice == 0) slot.now = {};
    // A write that had not read its memory yet cannot have left a whole block.
    if (dice == 1 && command.early) slot.now = std::move(command.block);
  }
  commands_.clear();
  for (std::vector<Slot>& slots : slots_) {
    for (Slot& slot : slots) slot.core_write = 0;
  }
}

std::vector<RecoveredWindow> Disk::Recover() {
  // Erases that were not reported belong to the run that is over.
  for (std::vector<Slot>& slots : slots_) {
    for (Slot& slot : slots) slot.now.condemned.clear();
  }
  std::vector<RecoveredWindow> windows;
  for (uint32_t w = 0; w < config_->windows.size(); ++w) {
    RecoveredWindow& recovered = windows.emplace_back();
    recovered.window = config_->windows[w].size;
    std::vector<uint32_t> order;
    for (uint32_t s = 0; s < slots_[w].size(); ++s) {
      if (slots_[w][s].now.write != 0) order.push_back(s);
    }
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return slots_[w][a].now.write < slots_[w][b].now.write;
    });
    std::map<WriteNumber, size_t> places;  // In recovered.blocks.
    std::map<std::pair<Value, uint32_t>, size_t> contents;
    for (const uint32_t s : order) {
      Slot& slot = slots_[w][s];
      const Written& block = slot.now;
      const bool is_first = block.parent == 0;
      const auto parent = places.find(block.parent);
      if (!is_first && (parent == places.end() ||
                        !recovered.blocks[parent->second].IsWhole(config_->tokens_per_block))) {
        continue;
      }
      const auto [same, is_new] =
          contents.try_emplace({block.path.back(), block.count()}, recovered.blocks.size());
      places.emplace(block.write, same->second);
      slot.core_write = block.write;
      RecoveredBlock found{.slot = {config_->disk(), SlotIndex{s}},
                           .parent = is_first ? RecoveredBlock::kRoot : parent->second,
                           .name_space = block.content.name_space,
                           .tokens = block.content.tokens,
                           .extras = block.content.extras,
                           .priority = block.content.priority,
                           .keyed = block.content.keyed};
      if (is_new) {
        recovered.blocks.push_back(std::move(found));
        continue;
      }
      RecoveredBlock& earlier = recovered.blocks[same->second];
      NotTakenBack(w, earlier.slot.slot);
      earlier.slot = found.slot;
      earlier.priority = found.priority;
    }
  }
  return windows;
}

}  // namespace pagoda::sim

#include "tests/sim/record/memory.h"

#include <algorithm>

#include "tests/sim/words/fail.h"

namespace pagoda::sim {

Memory::Memory(const SimConfig* config)
    : config_(config), tokens_per_block_(config->tokens_per_block) {
  for (size_t w = 0; w < config->windows.size(); ++w) {
    for (const Tier tier : kTiers) {
      const uint32_t slots =
          config->IsOnDisk(tier) ? 0 : config->slots_in(static_cast<uint32_t>(w), tier);
      values_[w][Index(tier)].resize(size_t{slots} * tokens_per_block_);
      touches_[w][Index(tier)].resize(slots);
    }
  }
}

void Memory::Add(const Order& order, Random& random) {
  SIM_CHECK(order.ticket.value() == last_.value() + 1, "copy ", order.ticket.value(), " follows ",
            last_.value());
  last_ = order.ticket;
  Copy copy{.order = order, .window = order.window_index};
  SIM_CHECK(copy.window < config_->windows.size(), "a copy in an unknown window");
  for (const SlotRef& slot : {order.source, order.target}) {
    SIM_CHECK(slot.slot.value() < num_slots(copy.window, slot.tier), "copy ", order.ticket.value(),
              " touches a slot that does not exist: ", slot.slot.value());
  }
  SIM_CHECK(!(order.source == order.target), "a copy onto itself");
  SIM_CHECK(order.num_tokens > 0 && order.num_tokens <= tokens_per_block_, "a copy of ",
            order.num_tokens, " tokens");
  for (const Ticket after : order.after) {
    SIM_CHECK(after < order.ticket, "copy ", order.ticket.value(), " waits for itself");
  }
  copy.reads_first = random.OneIn(2);
  copy.writes_first = copy.reads_first && random.OneIn(2);
  copies_.push_back(copy);
  for (const SlotRef& slot : {order.source, order.target}) {
    ++touches_[copy.window][Index(slot.tier)][slot.slot.value()].any;
  }
  ++touches_[copy.window][Index(order.target.tier)][order.target.slot.value()].writes;
}

bool Memory::Done(Ticket ticket) const {
  const auto it =
      std::lower_bound(copies_.begin(), copies_.end(), ticket,
                       [](const Copy& copy, Ticket t) { return copy.order.ticket < t; });
  return it == copies_.end() || it->order.ticket != ticket;
}

bool Memory::MayStart(const Copy& copy) const {
  return Done(copy.order.after[0]) && Done(copy.order.after[1]);
}

void Memory::Start(Copy& copy) {
  copy.started = true;
  if (copy.reads_first) Read(copy);
  if (copy.writes_first) Write(copy);
}

void Memory::Read(Copy& copy) {
  std::copy_n(slot(copy.window, copy.order.source), copy.order.num_tokens, copy.buffer.begin());
}

void Memory::Write(const Copy& copy) {
  std::copy_n(copy.buffer.begin(), copy.order.num_tokens, slot(copy.window, copy.order.target));
}

void Memory::StartSome(Random& random, uint32_t percent) {
  for (Copy& copy : copies_) {
    if (!copy.started && random.Percent(percent) && MayStart(copy)) Start(copy);
  }
}

bool Memory::PickStarted(Random& random, Ticket* ticket) {
  if (copies_.empty()) return false;
  const size_t begin = random.Below(static_cast<uint32_t>(copies_.size()));
  for (size_t i = 0; i < copies_.size(); ++i) {
    Copy& copy = copies_[(begin + i) % copies_.size()];
    if (!copy.started && MayStart(copy)) Start(copy);
    if (!copy.started) continue;
    *ticket = copy.order.ticket;
    return true;
  }
  Fail("no copy may start: their chains are a circle");
}

Memory::Ended Memory::End(Ticket ticket, Outcome outcome, Random& random) {
  const auto it = std::find_if(copies_.begin(), copies_.end(),
                               [&](const Copy& copy) { return copy.order.ticket == ticket; });
  SIM_CHECK(it != copies_.end() && it->started, "a copy ends that has not started");
  Copy& copy = *it;
  if (outcome == Outcome::kFailed) {
    for (Value& value : copy.buffer) value = random.Next();
    Write(copy);
  } else {
    if (!copy.reads_first) Read(copy);
    if (!copy.writes_first) Write(copy);
  }
  for (const SlotRef& slot : {copy.order.source, copy.order.target}) {
    --touches_[copy.window][Index(slot.tier)][slot.slot.value()].any;
  }
  --touches_[copy.window][Index(copy.order.target.tier)][copy.order.target.slot.value()].writes;
  const bool lost = outcome == Outcome::kFailed || copy.suspect;
  const Ended ended{.window = copy.window,
                    .lost = lost ? copy.order.target : SlotRef{kPrimaryTier, kNoSlot}};
  // Until another copy fills the slot.
  for (auto other = it + 1; other != copies_.end() && lost; ++other) {
    if (other->window != ended.window) continue;
    if (other->order.source == ended.lost) other->suspect = true;
    if (other->order.target == ended.lost) break;
  }
  copies_.erase(it);
  return ended;
}

void Memory::Crash(Random& random) {
  for (Copy& copy : copies_) {
    if (!copy.started || random.OneIn(2)) continue;
    for (Value& value : copy.buffer) value = random.Next();
    Write(copy);
  }
  copies_.clear();
  for (auto& window : touches_) {
    for (std::vector<Touches>& tier : window) std::fill(tier.begin(), tier.end(), Touches{});
  }
  last_ = {};
}

}  // namespace pagoda::sim

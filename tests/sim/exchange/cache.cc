#include "tests/sim/exchange/cache.h"

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "pools/sizing.h"
#include "tests/manager/fixtures/held_blocks.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/sim/words/fail.h"

namespace pagoda::exchange_sim {
namespace {

// Shared memory needs a name that no other process has.
std::string FreshName() {
  static std::atomic<uint64_t> count = 0;
  return absl::StrCat("xsim-", getpid(), "-", ++count);
}

}  // namespace

SimCache::SimCache(Surroundings* surroundings, size_t index)
    : surroundings_(*surroundings),
      config_(surroundings->config.caches[index]),
      random_(surroundings->config.seed, 100 + index) {
  const CacheLayout layout = LayoutOf(surroundings->config, config_.model);
  std::vector<uint32_t> host, host_slots;
  if (config_.host_blocks > 0) {
    host = {config_.host_blocks};
    host_slots = {SlotsFor(Tier(1), config_.host_blocks)};
  }
  pools_ = *PoolSet::Create(layout, {.tiers = {{config_.blocks}, host_slots}}, FreshName());
  manager_ = std::make_unique<SharedManager>(
      *BlockManager::Create({.layout = layout,
                             .tiers = HostTiers({config_.blocks}, host),
                             .epoch = Epoch(1),
                             .tenants = surroundings->config.tenants,
                             .journal_slots = true,
                             .start_time = surroundings->timeline.now()}),
      &log_, [surroundings] { return surroundings->timeline.now(); },
      [] { return SessionToken(1, 2); });
  manager_->SetCarrier({Lane::kMemory}, this);
  manager_->SetSlotSink(this);
}

SimCache::~SimCache() {
  manager_->SetSlotSink(nullptr);
  manager_->SetCarrier({Lane::kMemory}, nullptr);
}

SessionRef SimCache::OpenSession(const std::string& name) {
  return manager_->OpenSession(name, absl::InfiniteDuration())->ref;
}

void SimCache::Write(SlotIndex slot, uint32_t first, absl::Span<const Value> values) {
  const auto& layouts = pools_->layout().windows()[0].pools;
  for (uint32_t pool = 0; pool < layouts.size(); ++pool) {
    exchange_sim::Write(layouts[pool], pool, pools_->pool(0, pool).slot(slot), first, values);
  }
}

bool SimCache::Holds(SlotRef slot, uint32_t first, absl::Span<const Value> values) {
  const auto& layouts = pools_->layout().windows()[0].pools;
  for (uint32_t pool = 0; pool < layouts.size(); ++pool) {
    if (!exchange_sim::Holds(layouts[pool], pool, pools_->pool(0, pool, slot.tier).slot(slot.slot),
                             first, values)) {
      return false;
    }
  }
  return true;
}

// --- The record of what slots hold ---

void SimCache::Apply(std::vector<SlotChange> changes) {
  for (SlotChange& change : changes) {
    const std::pair place{change.slot.tier, change.slot.slot};
    if (!change.content.has_value()) {
      contents_.erase(place);
      continue;
    }
    const SlotContent& content = *change.content;
    Value parent = 0;
    if (content.parent.id == kNoBlock) {
      parent = surroundings_.library.Root(config_.model, content.name_space);
    } else {
      const auto above = known_.find(content.parent.id);
      SIM_CHECK(above != known_.end() && above->second.generation == content.parent.generation,
                "a block is cached whose parent is not");
      parent = above->second.end;
    }
    BlockValues values = surroundings_.library.ValuesOf(parent, content.key());
    known_[content.block.id] = {content.block.generation, values.end};
    contents_[place] = {change.ready, std::move(values.tokens)};
  }
}

void SimCache::Check() {
  for (const auto& [place, content] : contents_) {
    if (content.ready > completed_) continue;
    SIM_CHECK(Holds({place.first, place.second}, 0, content.values), "slot ", place.second.value(),
              " of tier ", place.first.value(),
              " holds other bytes than those of its cached block");
  }
  for (const auto& window : manager_->Read(&BlockManager::Stats).windows) {
    for (const TierOccupancy& tier : window.tiers) {
      SIM_CHECK(tier.sum() == tier.capacity, "rule 5: ", tier.sum(), " of ", tier.capacity);
    }
  }
}

void SimCache::CheckIdle() {
  SIM_CHECK(copies_.empty(), "a copy has not ended");
  if (surroundings_.trace->on()) {
    for (const auto& window : manager_->Read(&BlockManager::Stats).windows) {
      for (const TierOccupancy& tier : window.tiers) {
        surroundings_.trace->Add(sim::Text(
            "  of ", tier.capacity, " blocks ", tier.free, " are free, ", tier.cached, " cached, ",
            tier.active, " active, ", tier.pinned, " pinned, ", tier.in_flight, " in flight"));
      }
    }
  }
  SIM_CHECK(HoldsNothing(*manager_), "something holds a block, and all have left");
}

// --- Copies ---

void SimCache::Submit(absl::Span<const Order> orders) {
  for (const Order& order : orders) {
    copies_[order.ticket] = {.order = order};
    const auto most = static_cast<uint32_t>(absl::ToInt64Microseconds(config_.longest_copy));
    surroundings_.timeline.In(absl::Microseconds(random_.Below(most + 1)), [this, order] {
      copies_.at(order.ticket).is_due = true;
      Begin(order.ticket);
    });
  }
}

// Starts when the copies that last touched the slots have ended.
void SimCache::Begin(Ticket ticket) {
  const auto found = copies_.find(ticket);
  if (found == copies_.end() || !found->second.is_due) return;
  const Order order = found->second.order;
  for (const Ticket before : order.after) {
    if (before != Ticket() && copies_.contains(before)) return;
  }
  found->second.is_due = false;
  surroundings_.coverage.Add(Met::kCopy);
  const bool fails = surroundings_.faults && random_.Percent(config_.copy_failure_percent);
  Scribble(order.target, order.num_tokens);
  const auto most = static_cast<uint32_t>(absl::ToInt64Microseconds(config_.longest_copy));
  surroundings_.timeline.In(
      absl::Microseconds(random_.Below(most / 2 + 1)), [this, order, fails, most] {
        if (!fails) CopyBytes(order);
        surroundings_.timeline.In(absl::Microseconds(random_.Below(most / 2 + 1)),
                                  [this, order, fails] { End(order.ticket, fails); });
      });
}

void SimCache::CopyBytes(const Order& order) {
  const auto& layouts = pools_->layout().windows()[0].pools;
  for (uint32_t pool = 0; pool < layouts.size(); ++pool) {
    const auto source = pools_->pool(0, pool, order.source.tier).slot(order.source.slot);
    const auto target = pools_->pool(0, pool, order.target.tier).slot(order.target.slot);
    const size_t row_bytes = layouts[pool].head_stride_bytes();
    for (size_t at = 0; at < source.size(); at += row_bytes) {
      std::memcpy(target.data() + at, source.data() + at, order.num_tokens * kTokenBytes);
    }
  }
}

void SimCache::Scribble(SlotRef slot, uint32_t tokens) {
  std::vector<Value> garbage(tokens);
  for (Value& value : garbage) value = random_.Next();
  const auto& layouts = pools_->layout().windows()[0].pools;
  for (uint32_t pool = 0; pool < layouts.size(); ++pool) {
    exchange_sim::Write(layouts[pool], pool, pools_->pool(0, pool, slot.tier).slot(slot.slot), 0,
                        garbage);
  }
}

void SimCache::End(Ticket ticket, bool fails) {
  copies_.erase(ticket);
  if (fails) surroundings_.coverage.Add(Met::kCopyFailed);
  if (surroundings_.trace->on()) {
    surroundings_.trace->Add(sim::Text("  copy ", ticket.value(), fails ? " fails" : " ends"));
  }
  manager_->Complete(Lane::kMemory, ticket,
                     fails ? absl::InternalError("planned") : absl::OkStatus());
  std::vector<Ticket> waiting;
  for (const auto& [other, copy] : copies_) {
    if (copy.is_due) waiting.push_back(other);
  }
  for (const Ticket other : waiting) Begin(other);
}

}  // namespace pagoda::exchange_sim

#include "tests/sim/record/accountant.h"

#include <algorithm>

#include "tests/sim/words/fail.h"

namespace pagoda::sim {
namespace {

constexpr uint8_t kNobody = 0xFF;

constexpr uint8_t BitOf(TenantId tenant) { return static_cast<uint8_t>(1u << tenant.value()); }

}  // namespace

Accountant::Accountant(const SimConfig* config, uint32_t window_index)
    : config_(config), window_index_(window_index) {}

void Accountant::BeginCount() { std::fill(holders_.begin(), holders_.end(), 0); }

void Accountant::Hold(BlockId id, TenantId tenant) {
  if (config_->tenants.empty()) return;
  if (id.value() >= holders_.size()) holders_.resize(id.value() + 1);
  holders_[id.value()] |= BitOf(tenant);
}

void Accountant::EndCount(const Ledger& ledger, const Shadow& shadow, Coverage& coverage) {
  if (config_->tenants.empty()) return;
  accounts_ = {};
  owners_.assign(holders_.size(), kNobody);
  for (const Tier tier : kTiers) {
    for (uint32_t s = 0; s < ledger.num_slots(tier); ++s) {
      const uint32_t id = ledger.owner({tier, SlotIndex{s}});
      // No tenant is charged for duplicates.
      if (id == kNone || ledger.IsDuplicate(id, {tier, SlotIndex{s}})) continue;
      if (id >= holders_.size()) {
        holders_.resize(id + 1);
        owners_.resize(id + 1, kNobody);
      }
      const Node& node = shadow.node(id);
      if (node.cached()) {
        owners_[id] = static_cast<uint8_t>(config_->OwnerOf(node.name_space).value());
      }
      uint32_t holders = 0;
      for (uint16_t t = 0; t < config_->num_tenants(); ++t) {
        const bool owns = owners_[id] == t;
        const bool holds = (holders_[id] & BitOf(TenantId{t})) != 0;
        if (!owns && !holds) continue;
        // A shared block below that it holds can be onboarded at any time.
        Account& account = At(owns ? tier : kPrimaryTier, TenantId{t});
        ++account.charged;
        if (holders_[id] != 0) ++account.held;
        holders += holds ? 1 : 0;
      }
      if (holders > 1) coverage.Add(Met::kHeldByTwoTenants);
    }
  }
}

bool Accountant::Holds(uint32_t id, TenantId tenant) const {
  if (id >= holders_.size() || holders_[id] == 0) return false;
  return (holders_[id] & BitOf(tenant)) != 0 || owners_[id] == tenant.value();
}

uint32_t Accountant::Left(TenantId tenant) const {
  const uint32_t quota = config_->quota(tenant, kPrimaryTier);
  const uint32_t used = held(kPrimaryTier, tenant);
  return quota > used ? quota - used : 0;
}

void Accountant::Check(const std::vector<TenantUsage>& told) const {
  for (uint16_t t = 1; t < config_->num_tenants(); ++t) {
    const TenantId tenant{t};
    const std::string& name = config_->tenants[t - 1u].name;
    for (const Tier tier : kTiers) {
      const uint32_t quota = config_->quota(tenant, tier);
      SIM_CHECK(charged(tier, tenant) <= quota, "rule 16: ", name, " has ", charged(tier, tenant),
                " ", DefaultTierName(tier), " blocks of window ",
                WindowName(config_->windows[window_index_].size), ", its quota is ", quota);
    }
    for (const TenantUsage::Use& use : told[t].uses) {
      if (use.window != config_->windows[window_index_].size) continue;
      const uint32_t used = charged(use.tier, tenant);
      const uint32_t cached = used - held(use.tier, tenant);
      SIM_CHECK(use.used_blocks == used && use.cached_blocks == cached &&
                    use.quota_blocks == config_->quota(tenant, use.tier),
                "rule 16: the core charges ", name, " for ", use.used_blocks, " ",
                DefaultTierName(use.tier), " blocks of window ", WindowName(use.window), ", ",
                use.cached_blocks, " of them evictable; by its holders it has ", used, ", ", cached,
                " of them evictable");
    }
  }
}

}  // namespace pagoda::sim

#include "engine/schedule/tenant_quotas.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/error.h"
#include "engine/schedule/request_demand.h"

namespace pagoda {
namespace {

// Operators can name any number of tenants.
constexpr size_t kMaxRememberedQuotas = 4096;

}  // namespace

void TenantQuotas::Learn(const std::string& tenant, absl::Span<const WindowCapacity> windows) {
  if (tenants_.size() >= kMaxRememberedQuotas) tenants_.clear();
  Tenant& learnt = tenants_[tenant];
  learnt.known = true;
  learnt.quotas.clear();
  for (const WindowCapacity& window : windows) {
    if (window.quota_blocks.has_value()) {
      learnt.quotas.push_back({window.window, *window.quota_blocks});
    }
  }
}

absl::Status TenantQuotas::Check(const GenerateRequest& request, uint32_t tokens_per_block) const {
  const auto it = tenants_.find(request.charged());
  if (it == tenants_.end()) return absl::OkStatus();
  for (const Tenant::Quota& quota : it->second.quotas) {
    const uint64_t blocks = MostBlocks(request, quota.window, TokensPerBlock(tokens_per_block));
    if (blocks <= quota.blocks) continue;
    return MakeError(Reason::kInvalidCount,
                     absl::StrCat("the prompt's ", Counted(request.prompt.size(), "token"), " and ",
                                  request.max_new_tokens, " new ones", InBeams(request), " take ",
                                  Counted(blocks, "block"), " of window ", WindowName(quota.window),
                                  "; the quota of the tenant '", it->first, "' is ", quota.blocks));
  }
  return absl::OkStatus();
}

bool TenantQuotas::Knows(const std::string& tenant) const {
  const auto it = tenants_.find(tenant);
  return it != tenants_.end() && it->second.known;
}

void TenantQuotas::NoteFull(const std::string& tenant) { tenants_[tenant].asked = SteadyNow(); }

void TenantQuotas::NoteChange(const std::string& tenant) {
  const auto it = tenants_.find(tenant);
  if (it != tenants_.end()) it->second.asked.reset();
}

bool TenantQuotas::IsFull(const std::string& tenant, absl::Duration pause) const {
  const auto it = tenants_.find(tenant);
  return it != tenants_.end() && it->second.asked.has_value() && Since(*it->second.asked) < pause;
}

}  // namespace pagoda

#include "manager/sequences/raw_blocks.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/error.h"

namespace pagoda {

absl::StatusOr<Ticket> RawBlocks::AllocateBlocks(SessionId session, WindowSize window,
                                                 absl::Span<BlockHandle> out, absl::Time now) {
  OperationScope op = runner_.Begin(session, now);
  absl::StatusOr<WindowBlockManager*> manager = windows_.Require(window);
  if (!manager.ok()) return manager.status();
  if (out.empty() || out.size() > (*manager)->capacity()) {
    return MakeError(Reason::kInvalidCount,
                     absl::StrCat(Counted(out.size(), "block"), " asked for; 1 to ",
                                  (*manager)->capacity(), " are possible"));
  }
  op.tenant = sessions_.TenantOf(session);
  if (const uint32_t quota = (*manager)->Quota(op.tenant); out.size() > quota) {
    return MakeError(
        Reason::kInvalidCount,
        absl::StrCat(Counted(out.size(), "block"), " asked for; the tenant's quota is ", quota));
  }
  if (absl::Status status = capacity_.CheckNeeds(op.tenant, (*manager)->index(),
                                                 (*manager)->NeedsOf(out.size(), op.tenant));
      !status.ok()) {
    return status;
  }
  (*manager)->raw_blocks().TakeRaw(op, session, out);
  sessions_.Require(session).raw_blocks += out.size();
  if (records_) {
    std::vector<BlockId> ids;
    ids.reserve(out.size());
    for (const BlockHandle& handle : out) ids.push_back(handle.id);
    recorder_.BlocksCreated(window, ids, op.tenant);
  }
  return runner_.End(op);
}

absl::Status RawBlocks::FreeBlocks(SessionId session, WindowSize window,
                                   absl::Span<const BlockRef> blocks, absl::Time now) {
  OperationScope op = runner_.Begin(session, now);
  absl::StatusOr<WindowBlockManager*> manager = windows_.Require(window);
  if (!manager.ok()) return manager.status();
  if (blocks.empty()) return MakeError(Reason::kInvalidCount, "no blocks to free");
  op.tenant = sessions_.TenantOf(session);
  if (absl::Status status = (*manager)->raw_blocks().CheckRaw(op.tenant, session, blocks);
      !status.ok())
    return status;

  Free(op, sessions_.Require(session), **manager, blocks);
  runner_.End(op);
  return absl::OkStatus();
}

// Changes neither the tree nor what can be evicted, so it applies no expiries.
absl::Status RawBlocks::FillBlocks(SessionId session, WindowSize window,
                                   absl::Span<const BlockFill> fills) {
  absl::StatusOr<WindowBlockManager*> manager = windows_.Require(window);
  if (!manager.ok()) return manager.status();
  if (fills.empty()) return MakeError(Reason::kInvalidCount, "no blocks to fill");
  absl::Status status =
      (*manager)->raw_blocks().CheckFills(sessions_.TenantOf(session), session, fills);
  if (status.ok()) (*manager)->raw_blocks().Fill(fills);
  return status;
}

void RawBlocks::Free(OperationScope& op, Session& session, WindowBlockManager& window,
                     absl::Span<const BlockRef> blocks) {
  window.raw_blocks().FreeRaw(op, blocks);
  session.raw_blocks -= blocks.size();
  if (!records_) return;
  std::vector<BlockId> ids;
  ids.reserve(blocks.size());
  for (const BlockRef& ref : blocks) ids.push_back(ref.id);
  recorder_.BlocksReleased(window.window(), ids, op.tenant);
}

}  // namespace pagoda

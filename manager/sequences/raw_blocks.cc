#include "manager/sequences/raw_blocks.h"

#include <algorithm>
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

absl::StatusOr<std::vector<BlockMetadata>> RawBlocks::DescribeBlocks(
    SessionId session, WindowSize window, absl::Span<const BlockRef> blocks) const {
  const absl::StatusOr<WindowBlockManager*> manager = windows_.Require(window);
  if (!manager.ok()) return manager.status();
  if (blocks.empty() || blocks.size() > kMaxBatchHandles) {
    return MakeError(Reason::kInvalidCount,
                     absl::StrCat(blocks.size(), " blocks to describe; 1 to ", kMaxBatchHandles,
                                  " are possible"));
  }
  const TenantId tenant = sessions_.TenantOf(session);
  absl::StatusOr<WindowRawBlocks::Metadata> known =
      (*manager)->raw_blocks().DescribeRaw(tenant, session, blocks);
  if (!known.ok()) return known.status();
  const bool all_raw = std::all_of(known->begin(), known->end(),
                                   [](const auto& entry) { return entry.second.holders != 0; });
  if (!all_raw) {
    for (const SequenceId id : sessions_.Get(session).sequences) {
      (*manager)->raw_blocks().DescribeHeld(sequences_.Get({session, id}), &*known);
    }
  }
  for (const BlockRef& ref : blocks) {
    if (known->at(ref.id).holders == 0) return (*manager)->raw_blocks().ForeignBlock(tenant, ref);
  }
  for (auto& [id, metadata] : *known)
    (*manager)->raw_blocks().CompleteMetadata(tenant, id, &metadata);
  std::vector<BlockMetadata> described;
  described.reserve(blocks.size());
  for (const BlockRef& ref : blocks) described.push_back(known->at(ref.id));
  return described;
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

#include "server/bridges/smg_wire.h"

#include <variant>

namespace pagoda::server {
namespace {

namespace wire = ::smg::grpc::common;

int64_t Signed(BlockHash hash) { return static_cast<int64_t>(hash.value()); }

void StoredToSmg(const BlocksStored& stored, uint32_t tokens_per_block, wire::KvBlocksStored* out) {
  if (stored.parent.has_value()) out->set_parent_block_hash(Signed(*stored.parent));
  for (size_t i = 0; i < stored.hashes.size(); ++i) {
    wire::KvBlock* block = out->add_blocks();
    block->set_block_hash(Signed(stored.hashes[i]));
    const auto first = stored.tokens.begin() + static_cast<ptrdiff_t>(i * tokens_per_block);
    block->mutable_token_ids()->Add(first, first + tokens_per_block);
    block->set_block_size(static_cast<int32_t>(tokens_per_block));
    if (stored.name_space->lora_id.has_value()) {
      block->set_lora_id(static_cast<int64_t>(*stored.name_space->lora_id));
    }
    block->set_cache_level(stored.tier.value());
  }
}

bool Concerns(const RouterEvent& event, WindowSize window, const Viewer& viewer) {
  if (std::holds_alternative<AllCleared>(event.what)) return true;
  const auto* stored = std::get_if<BlocksStored>(&event.what);
  const WindowSize of =
      stored != nullptr ? stored->window : std::get<BlocksRemoved>(event.what).window;
  if (of != window) return false;
  if (viewer.caller.is_operator()) return true;
  // A tenant that shares sees the blocks that the other tenants share, except those with a salt.
  const bool secret = stored != nullptr && event.tenant != viewer.caller.tenant &&
                      !stored->name_space->cache_salt.empty();
  return !secret && viewer.tenants->MaySee(viewer.caller.tenant, event.tenant);
}

}  // namespace

void RouterBatchToSmg(const RouterBatch& batch, const SmgShape& shape, const Viewer& viewer,
                      wire::KvEventBatch* out) {
  out->set_sequence_number(batch.number);
  out->set_timestamp(absl::ToDoubleSeconds(batch.time - absl::UnixEpoch()));
  out->set_dp_rank(shape.data_parallel_rank);
  for (size_t i = 0; i < batch.events.size(); ++i) {
    const RouterEvent& event = batch.events[i];
    if (!Concerns(event, shape.window, viewer)) continue;
    wire::KvCacheEvent* to = out->add_events();
    to->set_event_id(batch.first_event + i);
    if (const auto* stored = std::get_if<BlocksStored>(&event.what)) {
      StoredToSmg(*stored, shape.tokens_per_block, to->mutable_stored());
    } else if (const auto* removed = std::get_if<BlocksRemoved>(&event.what)) {
      for (const BlockHash hash : removed->hashes) {
        to->mutable_removed()->add_block_hashes(Signed(hash));
      }
      to->mutable_removed()->set_cache_level(removed->tier.value());
    } else {
      to->mutable_cleared();
    }
  }
}

}  // namespace pagoda::server

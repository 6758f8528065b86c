// Encodes KV events as the msgpack batches that vLLM's ZMQ publisher sends.
#ifndef PAGODA_SERVER_BRIDGES_VLLM_WIRE_H_
#define PAGODA_SERVER_BRIDGES_VLLM_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "pools/types.h"
#include "server/bridges/router_events.h"

namespace pagoda::server {

// The facts about the cache that the batches contain.
struct VllmShape {
  uint32_t tokens_per_block = 0;
  std::vector<WindowSize> windows;  // A window's index is its group_idx.
  uint32_t data_parallel_rank = 0;
};

// "GPU" for the primary tier and "CPU" for every tier below it, regardless of the actual memory,
// because routers only distinguish near and far.
const char* MediumName(Tier tier);

// The batch as payloads of at most `max_bytes` each, in order. One payload if the batch fits; none
// if no event changes the content of a medium (also_below). An event that does not fit is split. A
// block that does not fit is a payload by itself, of at most LargestVllmPayload bytes.
//
// A payload is a msgpack array [ts, events, data_parallel_rank], always with all three. An event is
// a map with its name under "type":
//
//   BlockStored       block_hashes, parent_block_hash, token_ids, block_size, lora_id, medium,
//                     lora_name; if not empty also extra_keys, cache_salt, group_idx,
//                     kv_cache_spec_kind, kv_cache_spec_sliding_window
//   BlockRemoved      block_hashes, medium; with several groups group_idx
//   AllBlocksCleared
//
// Hashes are the unsigned 64-bit integers of events/block_hash.h. group_idx and the kind
// (full_attention, sliding_window) are present if the cache has more than one window or only a
// sliding one. lora_name is the adapter's id in decimal: the cache knows no other name.
//
// cache_salt is the salt. For a tenant's private blocks it begins with "TENANT/", with "%25" and
// "%2F" for each "%" and "/" of the tenant's name. A salt of the default tenant that
// contains a "/" gets another "/" before it. So the salts of two tenants, or of a tenant and the
// default tenant, are never the same text.
//
// A block's extra_keys are, in this order: the adapter's name; for each run of a multimodal item's
// tokens [the item's digest in hexadecimal, the position of its first token relative to the block's
// first token]; "extra_ids:" with the tokens' extra ids in decimal; and, in the first block of a
// sequence, the cache_salt. They are nil if there are none.
//
// After vLLM's vllm/distributed/kv_events.py, as of version 0.33.
std::vector<std::string> EncodeVllmBatch(const RouterBatch& batch, const VllmShape& shape,
                                         size_t max_bytes);

// The most bytes of a payload: `max_bytes`, or the bound for one block with any namespace and
// items if that is larger.
size_t LargestVllmPayload(const VllmShape& shape, size_t max_bytes);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BRIDGES_VLLM_WIRE_H_

// vLLM's KV events as bytes: the msgpack batches that its ZMQ publisher sends.
#ifndef PAGODA_SERVER_BRIDGES_VLLM_WIRE_H_
#define PAGODA_SERVER_BRIDGES_VLLM_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "pools/types.h"
#include "server/bridges/router_events.h"

namespace pagoda::server {

// What the batches say of the cache besides what happens.
struct VllmShape {
  uint32_t tokens_per_block = 0;
  std::vector<WindowSize> windows;  // A window's place is its group_idx.
  uint32_t data_parallel_rank = 0;
};

// "GPU" for the primary tier and "CPU" for those below it, whatever memory they are made of: what
// routers weigh is near and far.
const char* MediumName(Tier tier);

// The batch in payloads of at most `max_bytes` each, in order; one where it fits, none where
// nothing in it changes what a medium has (also_below). An event that does not fit is told as
// several. A block that does not fit is a payload by itself, of at most LargestVllmPayload bytes.
//
// A payload is a msgpack array [ts, events, data_parallel_rank], all three always. An event is a
// map with its name under "type":
//
//   BlockStored       block_hashes, parent_block_hash, token_ids, block_size, lora_id, medium,
//                     lora_name; where they say something also extra_keys, cache_salt, group_idx,
//                     kv_cache_spec_kind, kv_cache_spec_sliding_window
//   BlockRemoved      block_hashes, medium; with several groups group_idx
//   AllBlocksCleared
//
// Hashes are unsigned integers of 64 bits, those of events/block_hash.h. group_idx and the kind
// (full_attention, sliding_window) are there where the cache has more than one window or only a
// sliding one. lora_name is the adapter's id in decimal: the cache knows no other name. cache_salt
// is the salt; what is a tenant's own has "TENANT/" before it, with "%25" and "%2F" for each "%"
// and "/" of the tenant's name, and a salt of the default tenant that has a "/" in it has another
// one before it: two tenants' salts, or a tenant's and one of the default tenant, are never the
// same text. A block's extra_keys are the adapter's name, an [item's digest in hexadecimal, the
// place of its first token from the block's first token on] for each run of a multimodal item's
// tokens, "extra_ids:" with the tokens' extra ids in decimal, and in the first block of a sequence
// the cache_salt; nil where there are none.
//
// After vLLM's vllm/distributed/kv_events.py, as of version 0.33.
std::vector<std::string> EncodeVllmBatch(const RouterBatch& batch, const VllmShape& shape,
                                         size_t max_bytes);

// The most bytes of a payload: `max_bytes`, or those of one block, whatever its namespace and
// items.
size_t LargestVllmPayload(const VllmShape& shape, size_t max_bytes);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BRIDGES_VLLM_WIRE_H_

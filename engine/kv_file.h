// Saves a sequence's KV to a file, and loads it into the same cache or another one.
#ifndef PAGODA_ENGINE_KV_FILE_H_
#define PAGODA_ENGINE_KV_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/model/kv/kv_pools.h"
#include "manager/api/cache_client.h"
#include "pools/types.h"

namespace pagoda {

// The file has the safetensors format. For each layer N of the model it has the tensors
// "layers.N.keys" and "layers.N.values", [tokens][num_kv_heads][head_dim] in the pool's type. A
// layer with K only has keys only. Layers in float8 are bf16 in the file, multiplied by the scales
// of their blocks: exact for the engine's own scales, which are powers of two. So files of float8
// and of bf16 caches can be exchanged. The header's metadata has "format" ("pagoda-kv-1"), "model"
// (the cache's fingerprint) and "tokens" ("1 2 3"). It has none for an adapter, so both functions
// refuse a namespace with a lora_id (INVALID_ARGUMENT).
struct KvFileReport {
  uint32_t tokens = 0;
  uint64_t bytes = 0;  // Size of the file.
};

// Writes the KV of the longest cached prefix of `tokens`. Reads it through a temporary sequence,
// whose id `scratch` must be unused. The file appears whole or not at all. Errors: NOT_FOUND if no
// prefix is cached; FAILED_PRECONDITION if a sliding window has passed part of it; errors of the
// file system with the path, for example PERMISSION_DENIED; those of the client.
absl::StatusOr<KvFileReport> SaveKv(CacheClient& client, SequenceId scratch, const KvPools& pools,
                                    const NamespaceKey& name_space,
                                    absl::Span<const TokenId> tokens, const std::string& path);

// Puts a file's KV into the cache, so that the next prompt with this prefix matches it. The form of
// the file is not trusted; the KV values in it are. Blocks in float8 get new scales by the rules of
// kernels/float8_scales.h; the numbers that SaveKv has read from such blocks stay what they are.
// Errors: INVALID_CHECKPOINT (not such a file, or of another model or shape); DATA_LOSS if the file
// changes meanwhile; those of the client: INVALID_COUNT, BLOCKS_EXHAUSTED.
absl::StatusOr<KvFileReport> LoadKv(CacheClient& client, SequenceId scratch, const KvPools& pools,
                                    const NamespaceKey& name_space, const std::string& path);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_KV_FILE_H_

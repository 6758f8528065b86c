// A sequence's KV as a file: out of the cache, and back into it or into another one's.
#ifndef PAGODA_ENGINE_KV_FILE_H_
#define PAGODA_ENGINE_KV_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/model/kv_pools.h"
#include "manager/cache_client.h"
#include "pools/types.h"

namespace pagoda {

// A safetensors file. For each layer N of the model "layers.N.keys" and "layers.N.values",
// [tokens][num_kv_heads][head_dim] in the pool's type; in the header's metadata "format"
// ("pagoda-kv-1"), "model" (the fingerprint of the cache) and "tokens" ("1 2 3").
struct KvFileReport {
  uint32_t tokens = 0;
  uint64_t bytes = 0;  // Of the file.
};

// Writes the KV of the longest prefix of `tokens` that is cached, through a sequence `scratch` that
// is not in use. The file appears whole or not at all. Errors: NOT_FOUND where nothing of it is
// cached; FAILED_PRECONDITION where a sliding window has passed some of it; INVALID_ARGUMENT for
// layers of float8 or K only; PERMISSION_DENIED and the like with the path; those of the client.
absl::StatusOr<KvFileReport> SaveKv(CacheClient& client, SequenceId scratch, const KvPools& pools,
                                    const NamespaceKey& name_space,
                                    absl::Span<const TokenId> tokens, const std::string& path);

// Puts a file's KV into the cache, where the next prompt that begins so finds it. The file is not
// trusted in its form; what its numbers say is. Errors: INVALID_CHECKPOINT (not such a file, of
// another model, another shape), INVALID_ARGUMENT as above; those of the client: INVALID_COUNT,
// BLOCKS_EXHAUSTED.
absl::StatusOr<KvFileReport> LoadKv(CacheClient& client, SequenceId scratch, const KvPools& pools,
                                    const NamespaceKey& name_space, const std::string& path);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_KV_FILE_H_

// A copy of a sequence's KV in this process's memory.
#ifndef PAGODA_MANAGER_KV_SNAPSHOT_H_
#define PAGODA_MANAGER_KV_SNAPSHOT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "events/block_hash.h"
#include "manager/api/cache_client.h"
#include "pools/dense_rows.h"
#include "pools/pool.h"

namespace pagoda {

// The KV of a sequence's computed tokens. It outlives the sequence, its session and its cache. It
// can be read as dense rows, and stored in a cache again. Needs no room in a cache meanwhile.
//
// A sliding window has only the blocks that it still held: see first_token. They are all that the
// next tokens need.
//
// Immutable after Take; movable. Several threads can read it. The bytes of opaque layers and the
// scales of float8 layers are kept as they are.
class KvSnapshot {
 public:
  // One layer as dense rows. See RowForm.
  struct Rows {
    RowForm form;
    uint32_t first_token = 0;  // In the sequence.
    uint32_t num_tokens = 0;
    std::vector<std::byte> keys;    // [num_tokens][num_kv_heads][head_dim].
    std::vector<std::byte> values;  // Likewise; empty for a layer with K only.
  };

  using MappedPools = absl::Span<const std::unique_ptr<MappedPool>>;

  // Copies the KV of a running sequence of the client's session. Waits for copies into its slots.
  // `pools`: what client.MapPools gave, on the host or on a device. REQUIRES: no other caller uses
  // the sequence, or writes into its computed tokens, meanwhile. Tokens whose copies failed are not
  // computed. Errors: UNKNOWN_SEQUENCE; those of CacheClient::Execute and MappedPool::ReadSlot.
  // Cost: O(bytes).
  static absl::StatusOr<KvSnapshot> Take(CacheClient& client, MappedPools pools,
                                         SequenceId sequence);

  // Computed tokens of the sequence.
  uint32_t num_tokens() const { return num_tokens_; }
  // Of the copied blocks.
  uint64_t num_bytes() const;
  // Whether a sliding window had passed some of the tokens.
  bool slid() const;

  // Errors: INVALID_ARGUMENT (no such layer, or an opaque one). Cost: O(bytes of the layer).
  absl::StatusOr<Rows> Materialize(uint32_t layer) const;

  // Opens `sequence`, puts the KV into its blocks, and commits it. Then the sequence has at least
  // num_tokens() computed tokens. ReserveTokens takes capacity for more. `pools`: mapped for
  // writing. `tokens`: the sequence's, at least num_tokens(). Blocks that `name_space` has
  // cached are shared, and not written.
  //
  // If a window had slid, the KV before it is missing, and the blocks there have arbitrary bytes.
  // So that no other sequence finds these blocks, the sequence is then in a namespace that no other
  // one has: `name_space` with a random salt. Its blocks are found by its forks alone. They stay
  // until they are evicted.
  //
  // Errors: INVALID_ARGUMENT (fewer tokens, or pools of another form); those of AddSequence,
  // ReserveTokens and MappedPool::WriteSlot; KV_LOST. On an error there is no sequence. Cost:
  // O(bytes). While a window has not slid past them, its blocks take room as in a prefill by
  // chunks.
  absl::Status Restore(CacheClient& client, MappedPools pools, SequenceId sequence,
                       const NamespaceKey& name_space, absl::Span<const TokenId> tokens) const;

 private:
  // The blocks of one pool.
  struct Part {
    WindowSize window = kFullAttention;
    uint32_t pool_index = 0;
    PoolLayout layout;
    uint32_t first_block = 0;      // In the sequence's table.
    std::vector<std::byte> slots;  // Whole slots, up to the last computed token's.

    absl::Span<const std::byte> slot(uint32_t block) const;
    uint32_t end_block() const;
  };
  class Restoring;

  KvSnapshot() = default;
  // The elements with the layer, and their scales or null.
  absl::StatusOr<std::pair<const Part*, const Part*>> PartsOf(uint32_t layer) const;

  uint32_t num_tokens_ = 0;
  uint32_t tokens_per_block_ = 0;
  std::vector<Part> parts_;  // In the order of the pools: scales follow their elements.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_KV_SNAPSHOT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cache_checks.h"
#include "kernels/cpu/cache/cache.h"
#include "kernels/cpu/cache/cache_mover.h"
#include "kernels/cpu/cache/token_runs.h"
#include "kernels/execution/parallel.h"

namespace pagoda::kernels::cpu {
namespace {

// Writes K, and V if the pool has it, of the rows of one call.
class Writer {
 public:
  Writer(const CacheRows& rows, const KvLayer& kv, uint64_t num_tokens, Isa isa)
      : kv_(kv),
        has_values_(rows.values != nullptr),
        key_row_bytes_(rows.key_token_stride * ElementBytes(rows.type)),
        value_row_bytes_(rows.value_token_stride * ElementBytes(rows.type)),
        keys_(RowsSide(static_cast<const std::byte*>(rows.keys), rows.type, key_row_bytes_,
                       kv.head_dim),
              PoolSide(kv, kv.keys), HeadsOf(kv, kv.head_dim, kv.scales.keys), num_tokens, isa),
        values_(RowsSide(static_cast<const std::byte*>(rows.values), rows.type, value_row_bytes_,
                         kv.value_elements()),
                PoolSide(kv, kv.values), HeadsOf(kv, kv.value_elements(), kv.scales.values),
                num_tokens, isa) {}

  void operator()(const TokenRun& run) const {
    const uint64_t target = kv_.offset_bytes(run.slot, /*head=*/0, run.first_token);
    keys_.Move(run.first_row * key_row_bytes_, target, run.num_tokens, run.slot);
    if (has_values_) {
      values_.Move(run.first_row * value_row_bytes_, target, run.num_tokens, run.slot);
    }
  }

 private:
  KvLayer kv_;
  bool has_values_;
  uint64_t key_row_bytes_;
  uint64_t value_row_bytes_;
  CacheMover keys_;
  CacheMover values_;
};

}  // namespace

absl::Status WriteCache(const CacheWriteParams& params, const Execution& execution) {
  if (absl::Status status = CheckHostArguments(params); !status.ok()) return status;
  const uint64_t num_tokens = params.token_slots.size();
  const Writer writer(params.rows, params.kv, num_tokens, execution.isa);
  InPieces(execution, num_tokens, TokenBytes(params.kv), [&](uint64_t begin, uint64_t end) {
    ForRunsOfSlots(params.token_slots, params.kv.tokens_per_block, begin, end, writer);
    FenceStores();
  });
  return absl::OkStatus();
}

absl::Status FillCache(const CacheFillParams& params, const Execution& execution) {
  if (absl::Status status = CheckHostArguments(params); !status.ok()) return status;
  const auto num_tokens = static_cast<uint64_t>(params.starts.back());
  const Writer writer(params.rows, params.kv, num_tokens, execution.isa);
  const SequenceRows rows{.starts = params.starts,
                          .first_positions = params.first_positions,
                          .block_tables = params.block_tables,
                          .block_table_stride = params.block_table_stride,
                          .tokens_per_block = params.kv.tokens_per_block};
  InPieces(execution, num_tokens, TokenBytes(params.kv), [&](uint64_t begin, uint64_t end) {
    ForRunsOfSequences(rows, begin, end, writer);
    FenceStores();
  });
  return absl::OkStatus();
}

}  // namespace pagoda::kernels::cpu

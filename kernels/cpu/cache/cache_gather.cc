#include <cstddef>
#include <cstdint>

#include "kernels/cache_checks.h"
#include "kernels/cpu/cache/cache.h"
#include "kernels/cpu/cache/cache_mover.h"
#include "kernels/cpu/cache/token_runs.h"
#include "kernels/execution/parallel.h"

namespace pagoda::kernels::cpu {
namespace {

// Gathers K or V of one call.
class Gatherer {
 public:
  Gatherer(const CacheGatherParams& params, const std::byte* part, uint32_t head_elements,
           const float* scales, void* rows, uint64_t num_tokens, Isa isa)
      : kv_(params.kv),
        row_bytes_(uint64_t{kv_.num_kv_heads} * head_elements * ElementBytes(params.type)),
        mover_(PoolSide(kv_, part),
               RowsSide(static_cast<std::byte*>(rows), params.type, row_bytes_, head_elements),
               HeadsOf(kv_, head_elements, scales), num_tokens, isa) {}

  void operator()(const TokenRun& run) const {
    mover_.Move(kv_.offset_bytes(run.slot, /*head=*/0, run.first_token), run.first_row * row_bytes_,
                run.num_tokens, run.slot);
  }

 private:
  KvLayer kv_;
  uint64_t row_bytes_;
  CacheMover mover_;
};

}  // namespace

absl::Status GatherCache(const CacheGatherParams& params, const Execution& execution) {
  if (absl::Status status = CheckHostArguments(params); !status.ok()) return status;
  const KvLayer& kv = params.kv;
  const auto num_tokens = static_cast<uint64_t>(params.starts.back());
  const Gatherer keys(params, kv.keys, kv.head_dim, kv.scales.keys, params.keys, num_tokens,
                      execution.isa);
  const Gatherer values(params, kv.values, kv.value_elements(), kv.scales.values, params.values,
                        num_tokens, execution.isa);
  const SequenceRows rows{.starts = params.starts,
                          .first_positions = {},
                          .block_tables = params.block_tables,
                          .block_table_stride = params.block_table_stride,
                          .tokens_per_block = kv.tokens_per_block};
  InPieces(execution, num_tokens, TokenBytes(kv), [&](uint64_t begin, uint64_t end) {
    ForRunsOfSequences(rows, begin, end, [&](const TokenRun& run) {
      if (params.keys != nullptr) keys(run);
      if (params.values != nullptr) values(run);
    });
    FenceStores();
  });
  return absl::OkStatus();
}

}  // namespace pagoda::kernels::cpu

// Work that a producer hands to the consumers of a Hopper kernel in shared memory: some rows of a
// unit, and their queries.
#ifndef PAGODA_KERNELS_CUDA_HOPPER_ATTENTION_WORK_HOPPER_H_
#define PAGODA_KERNELS_CUDA_HOPPER_ATTENTION_WORK_HOPPER_H_

#include <cstdint>

#include "kernels/cuda/attention/attention_args.h"
#include "kernels/cuda/attention/attention_unit.h"
#include "kernels/cuda/hopper/hopper.h"

namespace pagoda::kernels::cuda {

// A Unit as consumers need it, without its table.
struct Work {
  PlannedItem item;
  uint32_t kv_head;
  uint32_t num_rows;  // The rows of the whole unit.
  uint32_t first_position;
  uint32_t first_row;  // The first row of this work.
};
inline constexpr uint32_t kWorkBytes = 48;
static_assert(sizeof(Work) == kWorkBytes);

PAGODA_DEVICE void StoreWork(const Unit& unit, uint32_t first_row, uint32_t address) {
  const PlannedItem& item = unit.item;
  StoreShared(address,
              Vector16{{item.sequence, item.first_query, item.num_queries, item.first_key}});
  StoreShared(address + 16, Vector16{{item.end_key, item.partial, 0, 0}});
  StoreShared(address + 32,
              Vector16{{unit.kv_head, unit.num_rows, unit.first_position, first_row}});
}

PAGODA_DEVICE Work LoadWork(uint32_t address) {
  const auto a = LoadShared<Vector16>(address);
  const auto b = LoadShared<Vector16>(address + 16);
  const auto c = LoadShared<Vector16>(address + 32);
  return {.item = {.sequence = a.words[0],
                   .first_query = a.words[1],
                   .num_queries = a.words[2],
                   .first_key = a.words[3],
                   .end_key = b.words[0],
                   .partial = b.words[1],
                   .unused = {}},
          .kv_head = c.words[0],
          .num_rows = c.words[1],
          .first_position = c.words[2],
          .first_row = c.words[3]};
}

PAGODA_DEVICE Unit UnitOf(const Work& work) {
  return {.item = work.item,
          .kv_head = work.kv_head,
          .num_rows = work.num_rows,
          .first_position = work.first_position,
          .table = nullptr};
}

// Walks a unit's rows in equal steps without a division for each row. A row is a query token, and a
// head of its group.
class RowWalk {
 public:
  PAGODA_DEVICE RowWalk(uint32_t group, uint32_t row, uint32_t step)
      : group_(group),
        token_(row / group),
        head_(row % group),
        step_tokens_(step / group),
        step_heads_(step % group) {}
  PAGODA_DEVICE uint32_t token() const { return token_; }
  PAGODA_DEVICE uint32_t head() const { return head_; }
  PAGODA_DEVICE void Next() {
    token_ += step_tokens_;
    head_ += step_heads_;
    if (head_ >= group_) {
      head_ -= group_;
      ++token_;
    }
  }

 private:
  uint32_t group_;
  uint32_t token_;
  uint32_t head_;
  uint32_t step_tokens_;
  uint32_t step_heads_;
};

// kThreads threads, of which this one is number `thread`, load the unit's rows first_row to
// first_row + num_rows - 1 of kDim elements: 64 rows after 64 rows, each 64 in columns (hopper.h),
// with zeros behind the last row and element.
template <uint32_t kDim, uint32_t kRows, uint32_t kThreads>
PAGODA_DEVICE void LoadRows(const AttentionArgs& args, const Unit& unit, uint32_t first_row,
                            uint32_t num_rows, uint32_t tile, uint32_t thread) {
  constexpr uint32_t kGroupRows = 64;
  constexpr uint32_t kChunks = kDim / 8;
  constexpr uint32_t kStepRows = kThreads / kChunks;
  constexpr uint32_t kAtATime = 8;  // Loads of a thread in flight.
  constexpr uint32_t kColumnBytes = kGroupRows * kColumnRowBytes;
  if (thread >= kStepRows * kChunks) return;
  const uint32_t chunk = thread % kChunks;
  uint32_t row = thread / kChunks;
  RowWalk place(args.group, first_row + row, kStepRows);
  const std::byte* const queries =
      args.query + (uint64_t{unit.item.first_query} * args.query_token_stride +
                    uint64_t{unit.kv_head} * args.group * args.kv.head_dim + chunk * 8) *
                       2;
#pragma unroll 1
  while (row < kRows) {
    Vector16 vectors[kAtATime];
#pragma unroll
    for (uint32_t i = 0; i < kAtATime; ++i) {
      vectors[i] = {};
      if (row + i * kStepRows < num_rows && chunk * 8 < args.kv.head_dim) {
        vectors[i] = LoadGlobal16(queries + (place.token() * args.query_token_stride +
                                             uint64_t{place.head()} * args.kv.head_dim) *
                                                2);
      }
      place.Next();
    }
#pragma unroll
    for (uint32_t i = 0; i < kAtATime; ++i) {
      // Always below kRows if kRows consists of whole steps.
      if (kRows % (kStepRows * kAtATime) == 0 || row < kRows) {
        StoreShared(tile + (row / kGroupRows * (kChunks / 8) + chunk / 8) * kColumnBytes +
                        SwizzledOffset(row % kGroupRows, chunk % 8),
                    vectors[i]);
      }
      row += kStepRows;
    }
  }
}

// A warp stores 16 rows of a whole item, from the unit's row `row` on: the kChunks chunks of 8
// elements from first_chunk on. address(i, chunk) is the place of a chunk of row i in shared
// memory. Rows from end_row on, and chunks behind the value, are left out.
template <uint32_t kChunks, class Address>
PAGODA_DEVICE void StoreRows(const AttentionArgs& args, const Unit& unit, uint32_t row,
                             uint32_t end_row, uint32_t first_chunk, const Address& address) {
  static_assert(kWarpThreads % kChunks == 0);
  constexpr uint32_t kStepRows = kWarpThreads / kChunks;
  constexpr uint32_t kSteps = 16 / kStepRows;
  constexpr uint32_t kAtATime = kSteps < 8 ? kSteps : 8;
  const uint32_t chunk = first_chunk + LaneIndex() % kChunks;
  if (chunk * 8 >= args.value_dim) return;
  uint32_t i = LaneIndex() / kChunks;
  RowWalk place(args.group, row + i, kStepRows);
  std::byte* const outputs =
      args.output + (uint64_t{unit.item.first_query} * args.output_token_stride +
                     uint64_t{unit.kv_head} * args.group * args.value_dim + chunk * 8) *
                        2;
#pragma unroll 1
  for (uint32_t step = 0; step < kSteps; step += kAtATime) {
    Vector16 vectors[kAtATime];
#pragma unroll
    for (uint32_t k = 0; k < kAtATime; ++k) {
      vectors[k] = LoadShared<Vector16>(address(i + k * kStepRows, chunk));
    }
#pragma unroll
    for (uint32_t k = 0; k < kAtATime; ++k) {
      if (row + i < end_row) {
        StoreGlobal16(outputs + (place.token() * args.output_token_stride +
                                 uint64_t{place.head()} * args.value_dim) *
                                    2,
                      vectors[k]);
      }
      i += kStepRows;
      place.Next();
    }
  }
}

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_HOPPER_ATTENTION_WORK_HOPPER_H_

// The two ways in which tiles do a unit, by how many rows share its keys.
#ifndef PAGODA_KERNELS_CPU_TILE_UNIT_H_
#define PAGODA_KERNELS_CPU_TILE_UNIT_H_

#include <immintrin.h>

#include "kernels/cpu/attention_unit.h"
#include "kernels/cpu/scratch.h"

namespace pagoda::kernels::cpu {

// Writes `elements` numbers of a query in the order that a kernel wants, which is not kUnpacked, or
// those of its sums back in their own.
void Arrange(ElementOrder order, uint32_t lanes, const float* __restrict natural, uint32_t elements,
             float* __restrict arranged);
void Restore(ElementOrder order, uint32_t lanes, const float* __restrict arranged,
             uint32_t elements, float* __restrict natural);

// Sums of a row lie this far apart: what the kernels' registers hold at a time.
inline uint32_t SumStride(uint32_t value_dim) { return (value_dim + 31) / 32 * 32; }

// Few rows: the keys go by once, from the pool straight into registers, for all of them. What
// counts is that they are fetched in time.
class DecodeUnit {
 public:
  static constexpr uint32_t kMostRows = 16;

  DecodeUnit(const AttentionCall& call, ScratchCutter& scratch);
  // See RunTileUnit.
  bool Run(const AttentionUnit& unit, const AttentionUnit& next, bool fetched);

 private:
  void Start();
  // Query head `head` of the unit's row, to queries_ in the kernel's form.
  void TakeQuery(uint32_t row, uint32_t head);
  template <class T>
  void Interleave(const T* query, uint32_t row);
  // Of a row in queries_, in elements.
  uint64_t QueryOffset(uint32_t row) const;
  void AttendTile(uint32_t first_key, uint32_t count);
  void AttendRows(uint32_t first_row, uint32_t rows, uint32_t visible);
  void HideUnseen(uint32_t visible);
  void FindTile(uint32_t first_key, uint32_t count);
  void FindFetched(uint32_t first_key);
  template <_mm_hint kHint>
  void FetchFirst();
  void Finish();

  // Where tokens lie.
  struct TileRows {
    explicit TileRows(ScratchCutter& scratch)
        : keys(scratch.Take<const std::byte*>(kTileTokens)),
          values(scratch.Take<const std::byte*>(kTileTokens)) {}

    const std::byte** keys;  // [kTileTokens]
    const std::byte** values;
  };

  const AttentionCall& call_;
  const TileKernels& kernels_;
  const uint32_t group_;
  const uint32_t query_elements_;  // Of a row, with zeros behind.
  const uint32_t sum_stride_;
  AttentionUnit unit_;
  AttentionUnit next_;
  uint32_t tiles_for_next_ = 0;  // Of this unit, during which a share of next's was fetched.
  uint32_t num_rows_ = 0;
  DecodeTile tile_;

  TileRows tile_rows_;  // zeros_ where no row sees the token.
  TileRows seen_rows_;  // Likewise, while rows see different tokens.
  TileRows next_rows_;  // What is fetched meanwhile.
  // Near: next_rows_ are the unit's tokens from here on, until it is unit_.item->end_key.
  uint32_t next_key_ = 0;
  std::byte* zeros_;  // A token.
  std::byte* queries_;
  float* natural_;  // One row, [max(head_dim, value_dim)].
  float* arranged_;
  float* sums_;  // [kMostRows][sum_stride]
  float* largest_;
  float* weight_sums_;
  float* slopes_;
  float* biases_;
};

// Many rows: keys and values are packed once, a piece at a time, as the multiplication of blocks
// of rows likes them.
class PrefillUnit {
 public:
  PrefillUnit(const AttentionCall& call, ScratchCutter& scratch);
  void Run(const AttentionUnit& unit);

 private:
  // Rows of one pass over the keys: bounds the memory where groups are large.
  static constexpr uint32_t kMostRows = 512;

  void Attend(uint32_t first_row, uint32_t num_rows);
  void Start();
  void PackQuery(uint32_t row);
  void AttendPack(uint32_t first_key, uint32_t count);
  void FindVisible(uint32_t first_key, uint32_t count, uint32_t words);
  uint32_t Pack(uint32_t first_key, uint32_t count, bool all_seen);
  void AttendBlock(uint32_t block, uint32_t first_key, uint32_t count, uint32_t tokens);
  void Finish();

  // Of a row of this pass.
  uint32_t QueryOf(uint32_t row) const { return (first_row_ + row) / group_; }
  uint32_t HeadOf(uint32_t row) const {
    return unit_.kv_head * group_ + (first_row_ + row) % group_;
  }
  int64_t PositionOfRow(uint32_t row) const { return PositionOf(call_, *unit_.item, QueryOf(row)); }

  const AttentionCall& call_;
  const TileKernels& kernels_;
  const uint32_t group_;
  const uint32_t sum_stride_;
  const uint32_t block_bytes_;  // Of a block of queries.
  AttentionUnit unit_;
  uint32_t first_row_ = 0;
  uint32_t num_rows_ = 0;
  bool finite_values_ = true;
  ScoreRule rule_;

  const std::byte** keys_;  // [kPackTokens]
  const std::byte** values_;
  uint32_t* visible_;  // [rows][kPackWords]
  std::byte* zeros_;
  std::byte* queries_;
  float* natural_;
  std::byte* key_pack_;
  std::byte* value_pack_;
  std::byte* kernel_scratch_;
  float* sums_;  // [rows][sum_stride]
  float* largest_;
  float* weight_sums_;
  float* slopes_;
  float* biases_;
};

}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_CPU_TILE_UNIT_H_

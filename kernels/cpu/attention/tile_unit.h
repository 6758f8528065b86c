// The two ways to compute a unit with tiles, chosen by the number of rows that share its keys.
#ifndef PAGODA_KERNELS_CPU_ATTENTION_TILE_UNIT_H_
#define PAGODA_KERNELS_CPU_ATTENTION_TILE_UNIT_H_

#include <immintrin.h>

#include "kernels/cpu/attention/attention_unit.h"
#include "kernels/cpu/attention/scratch.h"

namespace pagoda::kernels::cpu {

// Whether rows in this order are whole runs of 64 elements, filled up with zeros.
constexpr bool IsOfBytes(ElementOrder order) { return order >= ElementOrder::kBytePairs; }

// Copies `elements` numbers of a query to a kernel's order (not kUnpacked), or a kernel's sums back
// to the natural order. T: float or BFloat16.
template <class T>
void Arrange(ElementOrder order, uint32_t lanes, const T* __restrict natural, uint32_t elements,
             T* __restrict arranged);
void Restore(ElementOrder order, uint32_t lanes, const float* __restrict arranged,
             uint32_t elements, float* __restrict natural);

// The elements of a row with room for whole steps of every kernel. The distance between the sums of
// two rows is that of a value.
inline uint32_t WholeSteps(uint32_t elements) { return (elements + 63) / 64 * 64; }

// Few rows: each key is read once, from the pool directly into registers, for all rows. The speed
// depends on prefetching in time.
class DecodeUnit {
 public:
  static constexpr uint32_t kMostRows = 16;

  DecodeUnit(const AttentionCall& call, ScratchCutter& scratch);
  // See RunTileUnit.
  bool Run(const AttentionUnit& unit, const AttentionUnit& next, bool fetched);

 private:
  void Start();
  // Copies query head `head` of the unit's row to queries_, in the kernel's form.
  void TakeQuery(uint32_t row, uint32_t head);
  template <class T>
  void Interleave(const T* query, uint32_t row);
  // The same for AmxDecode.
  void InterleavePairs(const BFloat16* query, uint32_t row);
  // The offset of a row in queries_, in elements.
  uint64_t QueryOffset(uint32_t row) const;
  void AttendTile(uint32_t first_key, uint32_t count);
  void AttendRows(uint32_t first_row, uint32_t rows, uint32_t visible);
  void AddWaiting();
  void HideUnseen(uint32_t visible);
  void FindTileScales(uint32_t first_key, uint32_t count, uint32_t seen);
  void FindTile(uint32_t first_key, uint32_t count);
  uint64_t NextSeen(uint64_t key) const;
  void FindFetched(uint32_t first_key);
  void FetchScales(uint32_t sequence, uint32_t kv_head, uint32_t key) const;
  template <_mm_hint kHint>
  void FetchFirst();
  void Finish();

  // The addresses of tokens.
  struct TileRows {
    explicit TileRows(ScratchCutter& scratch)
        : keys(scratch.Take<const std::byte*>(kTileTokens)),
          values(scratch.Take<const std::byte*>(kTileTokens)) {}

    const std::byte** keys;  // [kTileTokens]
    const std::byte** values;
  };
  // Their scales, if each slot has its own.
  struct TileScales {
    float keys[kTileTokens];
    float values[kTileTokens];
  };

  const AttentionCall& call_;
  const TileKernels& kernels_;
  const bool scaled_;           // Each slot has its own scales.
  const AmxDecode* const amx_;  // Null: not used.
  const uint32_t group_;
  const uint32_t query_elements_;  // The elements of a query row, with zeros at the end.
  const uint32_t sum_stride_;
  AttentionUnit unit_;
  AttentionUnit next_;
  // The tiles of this unit during which a share of next's tokens was prefetched.
  uint32_t tiles_for_next_ = 0;
  uint32_t num_rows_ = 0;
  DecodeTile tile_;

  TileRows tile_rows_;  // zeros_ for tokens that no row sees.
  TileRows seen_rows_;  // Keeps tile_rows_ while rows see different tokens.
  TileRows next_rows_;  // The rows to prefetch.
  TileScales tile_scales_;
  TileScales seen_scales_;
  // Near: next_rows_ are the unit's tokens from here on, until this is unit_.item->end_key.
  uint32_t next_key_ = 0;
  std::byte* zeros_;  // One token.
  std::byte* queries_;
  float* natural_;  // One row, [max(head_dim, value_dim)].
  float* arranged_;
  float* sums_;  // [kMostRows][sum_stride]
  float* largest_;
  float* weight_sums_;
  float* slopes_;
  float* biases_;
  // For AmxDecode.
  std::byte* tile_scratch_;
  AmxValues* waiting_;
};

// Many rows: a piece of keys and values at a time is packed once, in the form that the
// multiplication of blocks of rows needs.
class PrefillUnit {
 public:
  PrefillUnit(const AttentionCall& call, ScratchCutter& scratch);
  void Run(const AttentionUnit& unit);

 private:
  // The rows of one pass over the keys. Bounds the memory if groups are large.
  static constexpr uint32_t kMostRows = 512;

  void Attend(uint32_t first_row, uint32_t num_rows);
  void Start();
  void PackQuery(uint32_t row);
  void AttendPack(uint32_t first_key, uint32_t count);
  void FindVisible(uint32_t first_key, uint32_t count, uint32_t words);
  uint32_t Pack(uint32_t first_key, uint32_t count, bool all_seen);
  void FindPackScales(uint32_t first_key, uint32_t count, const uint32_t* seen);
  void AttendBlock(uint32_t block, uint32_t first_key, uint32_t count, uint32_t tokens);
  void Finish();

  // The query token and the head of one row of this pass.
  uint32_t QueryOf(uint32_t row) const { return (first_row_ + row) / group_; }
  uint32_t HeadOf(uint32_t row) const {
    return unit_.kv_head * group_ + (first_row_ + row) % group_;
  }
  int64_t PositionOfRow(uint32_t row) const { return PositionOf(call_, *unit_.item, QueryOf(row)); }

  const AttentionCall& call_;
  const TileKernels& kernels_;
  const uint32_t group_;
  const uint32_t sum_stride_;
  const uint32_t block_bytes_;  // The bytes of one block of queries.
  AttentionUnit unit_;
  uint32_t first_row_ = 0;
  uint32_t num_rows_ = 0;
  bool finite_values_ = true;  // And their scales.
  ScoreRule rule_;

  const std::byte** keys_;  // [kPackTokens]
  const std::byte** values_;
  float* key_scales_;  // [kPackTokens]; null unless each slot has its own scales.
  float* value_scales_;
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

#endif  // PAGODA_KERNELS_CPU_ATTENTION_TILE_UNIT_H_

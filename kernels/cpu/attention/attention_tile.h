// The inner loops of attention, one version for each instruction set. Their arguments are plain
// pointers and numbers: the files with the loops are compiled for processors that not every machine
// has, so they must not define a function that the linker could use elsewhere.
#ifndef PAGODA_KERNELS_CPU_ATTENTION_ATTENTION_TILE_H_
#define PAGODA_KERNELS_CPU_ATTENTION_ATTENTION_TILE_H_

#include <cstddef>
#include <cstdint>

namespace pagoda::kernels::cpu {

// Tokens per tile of decode, and per word of a row's visibility mask.
inline constexpr uint32_t kTileTokens = 32;
// Tokens per pack, the tile of prefill.
inline constexpr uint32_t kPackTokens = 256;
inline constexpr uint32_t kPackWords = kPackTokens / kTileTokens;
// Query rows that lie side by side for decode.
inline constexpr uint32_t kQueryRows = 4;
// The most rows of a block of prefill.
inline constexpr uint32_t kMostBlockRows = 12;

// The order of 16 or 32 consecutive elements in a row of sums or of a query. A kernel keeps such a
// row in the order in which its registers yield the elements.
enum class ElementOrder : uint8_t {
  kNatural,
  kEvenOdd,   // In each 2 * lanes elements the even ones first; a smaller rest is natural.
  kUnpacked,  // In each 32 elements those with i % 8 < 4 first; a smaller rest as if filled up
              // to 32.
  // In each 64 elements, or a smaller rest as if filled up to 64, the registers that come from 64
  // bytes. Position p of 64 has element
  kBytePairs,     // p % 16 / 4 * 16 + p % 4 * 2 + p / 16 % 2 + p / 32 * 8,
  kByteHalves,    // p % 32 / 8 * 16 + p / 32 * 8 + p % 8, or
  kByteQuarters,  // p % 16 / 4 * 16 + p / 16 * 4 + p % 4.
};

// Numbers of 8 bits as bf16: the upper and the lower byte for each pattern without the sign.
struct Float8Table {
  uint8_t upper[128];
  uint8_t lower[128];
};

// Turns q . k into a score in units of log2: cap * tanh(multiplier * dot), or multiplier * dot if
// cap is 0.
struct ScoreRule {
  float multiplier = 1;
  float cap = 0;
};

// The online softmax of up to 4 query rows, or of kMostBlockRows rows in prefill. A row has its
// largest score up to now in units of log2 (-infinity: no key yet), the sum of its weights
// exp2(score - largest), and the weighted sums of the values, sum_stride apart.
struct RowStates {
  float* largest = nullptr;
  float* weight_sums = nullptr;
  float* sums = nullptr;
  uint32_t sum_stride = 0;
  // The addend to the first token's score, and its increment from token to token. Null: none.
  const float* first_biases = nullptr;
  const float* biases_per_token = nullptr;
};

// The query rows that AMX multiplies at once.
inline constexpr uint32_t kMostTileRows = 16;

// Values that AmxDecode has not added to the sums yet. Several tiles at a time cost less, because
// each addition reads and writes all sums.
struct AmxValues {
  static constexpr uint32_t kTiles = 4;

  uint32_t count = 0;
  const std::byte* values[kTiles][kTileTokens];
  alignas(64) uint16_t weights[kTiles][kMostTileRows][kTileTokens];  // bf16
};

// Some rows against kTileTokens tokens. All rows are at one position, or see the same of these
// tokens. All pointers are to readable rows of head_dim and value_dim elements. Invisible tokens
// can have any finite numbers there.
struct DecodeTile {
  const std::byte* const* keys;    // [kTileTokens]
  const std::byte* const* values;  // [kTileTokens]
  // Rows of head_dim elements to prefetch meanwhile. next_values equals next_keys if values have no
  // separate rows.
  const std::byte* const* next_keys;
  const std::byte* const* next_values;
  uint32_t num_next_tokens;
  bool near;         // Prefetch into the first cache, else into the second.
  uint32_t tokens;   // A multiple of 16; tokens behind are ignored.
  uint32_t visible;  // Bit t: token t is seen.
  // Factors of the tokens' scores, and of their weights in the sums: the scales of their slots.
  // Finite for unseen tokens. Null: all are 1.
  const float* key_scales;    // [kTileTokens]
  const float* value_scales;  // [kTileTokens]
  const Float8Table* float8;  // For the functions of Float8Decode and AmxDecode.
  // [head_dim / query_step, rounded up][kQueryRows][query_step]; the rows come first. For
  // AmxDecode, pairs of bf16: [head_dim / 32][16][kMostTileRows][2], the rows from column 0 on.
  const void* queries;
  uint32_t head_dim;
  uint32_t value_dim;
  ScoreRule rule;
  RowStates rows;
  // For AmxDecode: 1 to kMostTileRows, and 2 * kTileTokens * head_dim bytes, aligned to 64.
  uint32_t num_rows;
  std::byte* scratch;
  AmxValues* waiting;
};

// A block of block_rows rows against a pack of keys and values.
struct PrefillBlock {
  const void* queries;   // Packed in the kernel's form: [head_dim / k][block_rows][k].
  const void* keys;      // [kPackTokens / panel_tokens][head_dim / k][panel_tokens][k]
  const void* values;    // [value_dim / panel_tokens, rounded up][kPackTokens / k][panel_tokens][k]
  uint32_t first_token;  // A multiple of panel_tokens and of kTileTokens.
  uint32_t end_token;    // A multiple of the same.
  // [block_rows][kPackWords]. Bit t of word w: the row sees token 32 * w + t. Null: it sees all.
  const uint32_t* visible;
  // The scales of the whole pack, [kPackTokens]: see DecodeTile.
  const float* key_scales;
  const float* value_scales;
  // Set if some values or their scales are infinite or NaN: then a weight of 0 does not mask them.
  bool select_values;
  uint32_t head_dim;
  uint32_t value_dim;
  ScoreRule rule;
  RowStates rows;
  void* scratch;  // scratch_bytes, aligned to 64 bytes.
};

struct AmxDecode;

// The functions for one instruction set and one element type of a pool.
struct TileKernels {
  // For 1, 2 and 4 rows.
  void (*decode[3])(const DecodeTile& tile) = {};
  const AmxDecode* amx = nullptr;  // If set, it is used instead.
  // Whether queries of prefill and decode are bf16 (k = 2), not fp32.
  bool bf16 = false;
  // Elements per step of decode's queries. Elements behind head_dim are zeros.
  uint32_t query_step = 0;
  ElementOrder query_order = ElementOrder::kNatural;  // The order of decode's queries.
  ElementOrder sum_order = ElementOrder::kNatural;    // Decode's sums. Prefill's are natural.
  uint32_t lanes = 0;                                 // fp32 elements of a register.

  uint32_t block_rows = 0;
  uint32_t panel_tokens = 0;
  uint64_t scratch_bytes = 0;
  // `tokens` is a multiple of 32, at most kPackTokens. Rows of unused tokens are zeros.
  void (*pack_keys)(const std::byte* const* keys, uint32_t tokens, uint32_t head_dim,
                    void* pack) = nullptr;
  // Returns whether all values are finite.
  bool (*pack_values)(const std::byte* const* values, uint32_t tokens, uint32_t value_dim,
                      void* pack) = nullptr;
  void (*prefill)(const PrefillBlock& block) = nullptr;
};

// Other functions of decode for pools of 8 bits, on processors with VBMI (HasVbmi). They look up
// all numbers of a line at once. For 1, 2 and 4 rows.
struct Float8Decode {
  void (*decode[3])(const DecodeTile& tile) = {};
  uint32_t query_step = 0;
  ElementOrder query_order = ElementOrder::kNatural;
  ElementOrder sum_order = ElementOrder::kNatural;
};

extern const Float8Decode kAvx512Float8Decode;
extern const Float8Decode kAvx512Bf16Float8Decode;

// Decode by AMX, for head_dim and value_dim that are multiples of the granule. Queries are bf16.
struct AmxDecode {
  // Prepares the thread's registers for tiles of so many rows, 1 to kMostTileRows.
  void (*begin)(uint32_t num_rows) = nullptr;
  // Weighs the tile's values, which may wait in tile.waiting for their addition.
  void (*decode)(const DecodeTile& tile) = nullptr;
  // Adds those that wait. The tile has the rows with which they were weighed.
  void (*add_waiting)(const DecodeTile& tile) = nullptr;
  void (*end)() = nullptr;  // After the last begin.
  ElementOrder query_order = ElementOrder::kNatural;
  ElementOrder sum_order = ElementOrder::kNatural;
  uint32_t granule = 0;
};

extern const AmxDecode kAmxBFloat16Decode;
extern const AmxDecode kAmxFloat8Decode;  // For processors with VBMI.

// By ElementType. kAvx512Bf16 has none for fp32 and fp16 (null `prefill`); use those of kAvx512.
extern const TileKernels kAvx2Kernels[5];
extern const TileKernels kAvx512Kernels[5];
extern const TileKernels kAvx512Bf16Kernels[5];

}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_CPU_ATTENTION_ATTENTION_TILE_H_

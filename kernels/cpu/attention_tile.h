// The inner loops of attention that are written once for each set of instructions: plain pointers
// and numbers in, because the files that hold them are compiled for processors that not every
// machine has, and must define no function that another file could be linked to.
#ifndef PAGODA_KERNELS_CPU_ATTENTION_TILE_H_
#define PAGODA_KERNELS_CPU_ATTENTION_TILE_H_

#include <cstddef>
#include <cstdint>

namespace pagoda::kernels::cpu {

// Tokens of a tile of decode, and of the words that say which of them a row sees.
inline constexpr uint32_t kTileTokens = 32;
// Tokens of a pack, the tile of prefill.
inline constexpr uint32_t kPackTokens = 256;
inline constexpr uint32_t kPackWords = kPackTokens / kTileTokens;
// Rows of queries that lie side by side for decode.
inline constexpr uint32_t kQueryRows = 4;
// Most rows of a block of prefill.
inline constexpr uint32_t kMostBlockRows = 12;

// Which of 16 or 32 consecutive elements lie where in a row of sums, or of a query, that a kernel
// keeps in the order in which it gets the elements out of its registers.
enum class ElementOrder : uint8_t {
  kNatural,
  kEvenOdd,   // In each 2 * lanes elements the even ones first; a rest that is smaller: natural.
  kUnpacked,  // In each 32 elements those with i % 8 < 4 first; a rest that is smaller: as if it
              // were filled up to 32.
};

// From q . k to a score in units of log2: cap * tanh(multiplier * dot), or multiplier * dot where
// cap is 0.
struct ScoreRule {
  float multiplier = 1;
  float cap = 0;
};

// The softmax of up to 4 rows of queries, or kMostBlockRows of prefill, while their keys come by.
// A row has the largest score so far, in units of log2 (-infinity: no key so far), the sum of its
// weights exp2(score - largest), and the sums of values by weight, sum_stride apart.
struct RowStates {
  float* largest = nullptr;
  float* weight_sums = nullptr;
  float* sums = nullptr;
  uint32_t sum_stride = 0;
  // What is added to the score of the first token, and from token to token; null: nothing.
  const float* first_biases = nullptr;
  const float* biases_per_token = nullptr;
};

// Some rows of one position, or of several that see the same of these tokens, against kTileTokens
// tokens. All pointers are to readable rows of head_dim and value_dim elements; tokens that are not
// visible may have any finite numbers there.
struct DecodeTile {
  const std::byte* const* keys;    // [kTileTokens]
  const std::byte* const* values;  // [kTileTokens]
  // Rows of head_dim elements, to be fetched meanwhile; the values' are the keys' where they have
  // none of their own.
  const std::byte* const* next_keys;
  const std::byte* const* next_values;
  uint32_t num_next_tokens;
  bool near;         // They come into the first cache, else into the second.
  uint32_t tokens;   // A multiple of 16; those behind are left out.
  uint32_t visible;  // Bit t: token t is seen.
  // [head_dim / query_step, rounded up][kQueryRows][query_step], of which the rows are the first.
  const void* queries;
  uint32_t head_dim;
  uint32_t value_dim;
  ScoreRule rule;
  RowStates rows;
};

// A block of block_rows rows against a pack of keys and values.
struct PrefillBlock {
  const void* queries;   // Packed by the kernel's form: [head_dim / k][block_rows][k].
  const void* keys;      // [kPackTokens / panel_tokens][head_dim / k][panel_tokens][k]
  const void* values;    // [value_dim / panel_tokens, rounded up][kPackTokens / k][panel_tokens][k]
  uint32_t first_token;  // A multiple of panel_tokens, of kTileTokens as well.
  uint32_t end_token;    // Likewise.
  // [block_rows][kPackWords], bit t of word w: the row sees token 32 * w + t. Null: all of them.
  const uint32_t* visible;
  // Some values are infinite or NaN, so that a weight of 0 does not do.
  bool select_values;
  uint32_t head_dim;
  uint32_t value_dim;
  ScoreRule rule;
  RowStates rows;
  void* scratch;  // scratch_bytes, aligned to 64.
};

// For one set of instructions and one type of a pool's elements.
struct TileKernels {
  // By rows: 1, 2 and 4.
  void (*decode[3])(const DecodeTile& tile) = {};
  // A query of prefill and decode is fp32, or bf16 (k = 2).
  bool bf16 = false;
  uint32_t query_step = 0;  // Elements of decode's queries; what is behind head_dim are zeros.
  ElementOrder query_order = ElementOrder::kNatural;  // Of decode's queries.
  ElementOrder sum_order =
      ElementOrder::kNatural;  // Of decode's sums; those of prefill are natural.
  uint32_t lanes = 0;          // fp32 elements of a register.

  uint32_t block_rows = 0;
  uint32_t panel_tokens = 0;
  uint64_t scratch_bytes = 0;
  // Tokens are a multiple of 32, at most kPackTokens; rows of tokens without use are zeros.
  void (*pack_keys)(const std::byte* const* keys, uint32_t tokens, uint32_t head_dim,
                    void* pack) = nullptr;
  // Whether all of them are finite.
  bool (*pack_values)(const std::byte* const* values, uint32_t tokens, uint32_t value_dim,
                      void* pack) = nullptr;
  void (*prefill)(const PrefillBlock& block) = nullptr;
};

// By ElementType. kAvx512Bf16 has none for fp32 and fp16 (a null `prefill`): those of kAvx512.
extern const TileKernels kAvx2Kernels[5];
extern const TileKernels kAvx512Kernels[5];
extern const TileKernels kAvx512Bf16Kernels[5];

}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_CPU_ATTENTION_TILE_H_

// Moves rows of new tokens into their blocks, and rows of sequences out of them. Each block of
// threads handles one token; its threads take vectors of eight elements of the token's heads, or
// single elements if those are not aligned.
#include <type_traits>

#include "kernels/cuda/cache/cache_args.h"
#include "kernels/cuda/device/elements.h"
#include "kernels/cuda/device/launch.h"

namespace pagoda::kernels::cuda {
namespace {

constexpr uint32_t kVector = 8;
constexpr uint32_t kNoSlot = ~uint32_t{0};

// Eight elements of T, as whole words.
template <class T>
struct Elements8 {
  static constexpr uint32_t kWords = sizeof(T) * kVector / 4;
  uint32_t words[kWords];
};

template <class T>
PAGODA_DEVICE Elements8<T> LoadVector(const std::byte* at) {
  if constexpr (sizeof(T) == 1) {
    return std::bit_cast<Elements8<T>>(LoadGlobal8(at));
  } else {
    Elements8<T> elements;
#pragma unroll
    for (uint32_t i = 0; i < Elements8<T>::kWords; i += 4) {
      const Vector16 vector = LoadGlobal16(at + i * 4);
      for (uint32_t k = 0; k < 4; ++k) elements.words[i + k] = vector.words[k];
    }
    return elements;
  }
}

template <class T>
PAGODA_DEVICE void StoreVector(std::byte* at, const Elements8<T>& elements) {
  if constexpr (sizeof(T) == 1) {
    StoreGlobal8(at, std::bit_cast<Vector8>(elements));
  } else {
#pragma unroll
    for (uint32_t i = 0; i < Elements8<T>::kWords; i += 4) {
      StoreGlobal16(at + i * 4, Vector16{{elements.words[i], elements.words[i + 1],
                                          elements.words[i + 2], elements.words[i + 3]}});
    }
  }
}

template <class T>
PAGODA_DEVICE void Unpack(const Elements8<T>& packed, float (&values)[kVector]) {
  constexpr uint32_t kPerWord = 4 / sizeof(T);
#pragma unroll
  for (uint32_t i = 0; i < kVector; ++i) {
    const uint32_t bits = packed.words[i / kPerWord] >> (i % kPerWord * sizeof(T) * 8);
    if constexpr (sizeof(T) == 4) {
      values[i] = std::bit_cast<float>(bits);
    } else if constexpr (sizeof(T) == 2) {
      values[i] = ToFloat(T{static_cast<uint16_t>(bits)});
    } else {
      values[i] = ToFloat(T{static_cast<uint8_t>(bits)});
    }
  }
}

template <class T>
PAGODA_DEVICE Elements8<T> Pack(const float (&values)[kVector]) {
  Elements8<T> packed;
#pragma unroll
  for (uint32_t i = 0; i < kVector; i += 4 / sizeof(T)) {
    uint32_t& word = packed.words[i * sizeof(T) / 4];
    if constexpr (sizeof(T) == 4) {
      word = std::bit_cast<uint32_t>(values[i]);
    } else if constexpr (sizeof(T) == 2) {
      word = PackPair<T>(values[i], values[i + 1]);
    } else {
      word = 0;
      for (uint32_t k = 0; k < 4; ++k) {
        word |= uint32_t{FromFloat<T>(values[i + k]).bits} << (8 * k);
      }
    }
  }
  return packed;
}

// A token's place in the pool. Padding and places outside have kNoSlot.
struct TokenPlace {
  uint32_t slot = kNoSlot;
  uint32_t token = 0;
};

PAGODA_DEVICE TokenPlace FindToken(const CacheArgs& args, uint32_t n) {
  const TokenPlaces& places = args.places;
  const KvLayer& kv = args.kv;
  int64_t slot;
  uint32_t token;
  if (places.token_slots != nullptr) {
    const int64_t token_slot = places.token_slots[n];
    if (token_slot < 0) return {};
    slot = token_slot / kv.tokens_per_block;
    token = static_cast<uint32_t>(token_slot % kv.tokens_per_block);
  } else {
    // The last sequence that starts at n or before. Empty sequences start where the next one does.
    uint32_t low = 0;
    uint32_t high = places.num_sequences;
    while (low + 1 < high) {
      const uint32_t middle = (low + high) / 2;
      if (places.starts[middle] <= static_cast<int32_t>(n)) {
        low = middle;
      } else {
        high = middle;
      }
    }
    if (static_cast<int32_t>(n) >= places.starts[low + 1]) return {};
    const int32_t first = places.first_positions == nullptr ? 0 : places.first_positions[low];
    const int64_t position = int64_t{first} + n - places.starts[low];
    slot = places.block_tables[low * places.block_table_stride + position / kv.tokens_per_block];
    token = static_cast<uint32_t>(position % kv.tokens_per_block);
  }
  if (slot < 0 || slot >= kv.num_slots) return {};
  return {.slot = static_cast<uint32_t>(slot), .token = token};
}

// The index of a head's scale in a slot.
PAGODA_DEVICE uint64_t ScaleIndex(const KvScales& scales, uint32_t slot, uint32_t head) {
  return slot * scales.slot_stride + (scales.per_head ? head : 0);
}

enum class Direction : uint8_t { kIntoPool, kOutOfPool };

// Row: the type of the rows. Pool: the type of the pool.
template <class Row, class Pool, Direction kDirection>
struct MoveKernel {
  static constexpr uint32_t kThreads = 128;
  static constexpr uint32_t kMinBlocks = 1;
  using Args = CacheArgs;
  static constexpr bool kIntoPool = kDirection == Direction::kIntoPool;
  using Source = std::conditional_t<kIntoPool, Row, Pool>;
  using Target = std::conditional_t<kIntoPool, Pool, Row>;
  // Then bits are copied: rows have at least 16 bits, and such pools have no scales.
  static constexpr bool kSameType = std::is_same_v<Row, Pool>;

  static PAGODA_DEVICE void Run(const CacheArgs& args) {
    const TokenRows& rows = args.rows;
    const KvScales& scales = args.kv.scales;
    for (uint64_t n = BlockIndex(); n < rows.num_tokens; n += GridBlocks()) {
      const TokenPlace place = FindToken(args, static_cast<uint32_t>(n));
      if (place.slot == kNoSlot) continue;
      const uint64_t offset =
          place.slot * args.kv.slot_stride_bytes + place.token * args.kv.token_stride_bytes;
      if (rows.keys != nullptr) {
        Move(args, rows.keys + n * rows.key_token_stride * sizeof(Row), args.kv.keys + offset,
             args.kv.head_dim, scales.keys, place.slot);
      }
      if (rows.values != nullptr) {
        Move(args, rows.values + n * rows.value_token_stride * sizeof(Row), args.kv.values + offset,
             rows.value_dim, scales.values, place.slot);
      }
    }
  }

  // Moves one part, K or V, of a token's heads.
  static PAGODA_DEVICE void Move(const CacheArgs& args, std::byte* row, std::byte* pool,
                                 uint32_t dim, const float* scales, uint32_t slot) {
    const uint32_t heads = args.kv.num_kv_heads;
    const auto scale_of = [&](uint32_t head) {
      return scales == nullptr ? 1.0f : scales[ScaleIndex(args.kv.scales, slot, head)];
    };
    if (args.vectors) {
      const uint32_t vectors = dim / kVector;
      for (uint32_t i = ThreadIndex(); i < heads * vectors; i += kThreads) {
        const uint32_t head = i / vectors;
        std::byte* in_row = row + i * kVector * sizeof(Row);
        std::byte* in_pool =
            pool + head * args.kv.head_stride_bytes + i % vectors * kVector * sizeof(Pool);
        MoveVector(in_row, in_pool, scale_of(head));
      }
      return;
    }
    for (uint32_t i = ThreadIndex(); i < heads * dim; i += kThreads) {
      const uint32_t head = i / dim;
      std::byte* in_pool = pool + head * args.kv.head_stride_bytes + i % dim * sizeof(Pool);
      MoveElement(row + i * sizeof(Row), in_pool, scale_of(head));
    }
  }

  static PAGODA_DEVICE void MoveVector(std::byte* in_row, std::byte* in_pool, float scale) {
    const std::byte* source = kIntoPool ? in_row : in_pool;
    std::byte* target = kIntoPool ? in_pool : in_row;
    if constexpr (kSameType) {
      StoreVector<Target>(target, LoadVector<Source>(source));
    } else {
      float values[kVector];
      Unpack<Source>(LoadVector<Source>(source), values);
      for (uint32_t k = 0; k < kVector; ++k) values[k] = Scaled(values[k], scale);
      StoreVector<Target>(target, Pack<Target>(values));
    }
  }

  static PAGODA_DEVICE void MoveElement(std::byte* in_row, std::byte* in_pool, float scale) {
    const std::byte* source = kIntoPool ? in_row : in_pool;
    std::byte* target = kIntoPool ? in_pool : in_row;
    if constexpr (kSameType) {
      *reinterpret_cast<Target*>(target) = *reinterpret_cast<const Source*>(source);
    } else {
      StoreAs<Target>(target, 0, Scaled(LoadAs<Source>(source, 0), scale));
    }
  }

  static PAGODA_DEVICE float Scaled(float value, float scale) {
    return kIntoPool ? value / scale : value * scale;
  }
};

template <Direction kDirection>
int LaunchMove(const CacheArgs& args, Stream stream) {
  return VisitElementType(args.rows.type, [&]<class Row>() {
    return VisitElementType(args.kv.type, [&]<class Pool>() {
      if constexpr (sizeof(Row) == 1) {
        return 0;  // CheckShapes: rows never have 8 bits.
      } else {
        return Launch<MoveKernel<Row, Pool, kDirection>>({.blocks = args.rows.num_tokens}, stream,
                                                         args);
      }
    });
  });
}

}  // namespace

int LaunchWrite(const CacheArgs& args, Stream stream) {
  return LaunchMove<Direction::kIntoPool>(args, stream);
}

int LaunchGather(const CacheArgs& args, Stream stream) {
  return LaunchMove<Direction::kOutOfPool>(args, stream);
}

}  // namespace pagoda::kernels::cuda

#include "tests/kernels/exchange.h"

#include <cstring>
#include <type_traits>

#include "kernels/execution/parallel.h"
#include "kernels/shape_checks.h"

namespace pagoda::kernels {
namespace {

constexpr uint32_t kSplitBytes = 16;
constexpr uint32_t kTile = 32;
constexpr uint32_t kFace = 16;

// Elements of a token per head.
uint32_t PartElements(const ExchangeParams& params) {
  return params.part == params.kv.keys ? params.kv.head_dim : params.kv.value_elements();
}

// The number of neighbouring elements of a token that stay neighbours.
uint32_t ChunkElements(const ExchangeParams& params) {
  switch (params.form) {
    case ExchangeForm::kSplitByX:
      return kSplitBytes / static_cast<uint32_t>(ElementBytes(params.kv.type));
    case ExchangeForm::kTiled32:
      return kFace;
    case ExchangeForm::kTransposed:
      break;
  }
  return 1;
}

// The offset of a token's element in a head of the other form, in elements.
uint64_t OffsetInHead(const ExchangeParams& params, uint64_t token, uint64_t element) {
  const uint64_t tokens = params.kv.tokens_per_block;
  switch (params.form) {
    case ExchangeForm::kSplitByX: {
      const uint64_t x = ChunkElements(params);
      return (element / x * tokens + token) * x + element % x;
    }
    case ExchangeForm::kTiled32: {
      const uint64_t tile = token / kTile * (PartElements(params) / kTile) + element / kTile;
      const uint64_t face = token % kTile / kFace * 2 + element % kTile / kFace;
      return (tile * 4 + face) * kFace * kFace + token % kFace * kFace + element % kFace;
    }
    case ExchangeForm::kTransposed:
      break;
  }
  return element * tokens + token;
}

absl::Status CheckArguments(const ExchangeParams& params) {
  const KvLayer& kv = params.kv;
  if (absl::Status status = CheckKvLayer(kv); !status.ok()) return status;
  if (params.part == nullptr || (params.part != kv.keys && params.part != kv.values)) {
    return InvalidArgument("part is neither kv.keys nor kv.values");
  }
  if (params.blocks == nullptr) return InvalidArgument("blocks is null");
  const bool tiled = params.form == ExchangeForm::kTiled32;
  const uint32_t unit = tiled ? kTile : ChunkElements(params);
  if (PartElements(params) % unit != 0) {
    return InvalidArgument(params.part == kv.keys ? "kv.head_dim" : "kv.value_dim", " is ",
                           PartElements(params), ", not a multiple of ", unit);
  }
  if (tiled && kv.tokens_per_block % kTile != 0) {
    return InvalidArgument("kv.tokens_per_block is ", kv.tokens_per_block, ", not a multiple of ",
                           kTile);
  }
  for (size_t i = 0; i < params.slots.size(); ++i) {
    if (params.slots[i] < kv.num_slots) continue;
    return InvalidArgument("slots[", i, "] is ", params.slots[i], " of ", kv.num_slots);
  }
  return absl::OkStatus();
}

// Calls move(pool_offset, blocks_offset) for every chunk of a head. `head` counts the heads of all
// blocks.
template <class Move>
void ForChunks(const ExchangeParams& params, uint64_t head, const Move& move) {
  const KvLayer& kv = params.kv;
  const uint64_t element_bytes = ElementBytes(kv.type);
  const uint64_t head_bytes = ExchangeBytes(params) / kv.num_kv_heads;
  const uint32_t slot = params.slots[head / kv.num_kv_heads];
  const auto head_in_slot = static_cast<uint32_t>(head % kv.num_kv_heads);
  for (uint32_t token = 0; token < kv.tokens_per_block; ++token) {
    const uint64_t in_pool = kv.offset_bytes(slot, head_in_slot, token);
    for (uint32_t i = 0; i < PartElements(params); i += ChunkElements(params)) {
      move(in_pool + i * element_bytes,
           head * head_bytes + OffsetInHead(params, token, i) * element_bytes);
    }
  }
}

// Calls copy(pool_offset, blocks_offset, bytes) for every chunk of every block. The type of `bytes`
// is a compile-time constant, so that compilers move a chunk by one instruction.
template <class Copy>
void ForAllChunks(const ExchangeParams& params, const cpu::Execution& execution, const Copy& copy) {
  const uint64_t heads = params.slots.size() * params.kv.num_kv_heads;
  const auto in_chunks = [&](auto bytes) {
    cpu::InPieces(execution, heads, ExchangeBytes(params) / params.kv.num_kv_heads,
                  [&](uint64_t begin, uint64_t end) {
                    for (uint64_t head = begin; head < end; ++head) {
                      ForChunks(params, head, [&](uint64_t in_pool, uint64_t in_blocks) {
                        copy(in_pool, in_blocks, bytes);
                      });
                    }
                  });
  };
  switch (ChunkElements(params) * ElementBytes(params.kv.type)) {
    case 1:
      return in_chunks(std::integral_constant<size_t, 1>());
    case 2:
      return in_chunks(std::integral_constant<size_t, 2>());
    case 4:
      return in_chunks(std::integral_constant<size_t, 4>());
    case 16:
      return in_chunks(std::integral_constant<size_t, 16>());
    case 32:
      return in_chunks(std::integral_constant<size_t, 32>());
    case 64:
      return in_chunks(std::integral_constant<size_t, 64>());
  }
}

}  // namespace

uint64_t ExchangeBytes(const ExchangeParams& params) {
  return uint64_t{params.kv.num_kv_heads} * params.kv.tokens_per_block * PartElements(params) *
         ElementBytes(params.kv.type);
}

namespace cpu {

absl::Status ExportBlocks(const ExchangeParams& params, const Execution& execution) {
  if (absl::Status status = CheckArguments(params); !status.ok()) return status;
  ForAllChunks(params, execution, [&](uint64_t in_pool, uint64_t in_blocks, auto bytes) {
    std::memcpy(params.blocks + in_blocks, params.part + in_pool, bytes);
  });
  return absl::OkStatus();
}

absl::Status ImportBlocks(const ExchangeParams& params, const Execution& execution) {
  if (absl::Status status = CheckArguments(params); !status.ok()) return status;
  std::byte* part = params.part == params.kv.keys ? params.kv.keys : params.kv.values;
  ForAllChunks(params, execution, [&](uint64_t in_pool, uint64_t in_blocks, auto bytes) {
    std::memcpy(part + in_pool, params.blocks + in_blocks, bytes);
  });
  return absl::OkStatus();
}

}  // namespace cpu

}  // namespace pagoda::kernels

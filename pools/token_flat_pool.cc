#include "pools/token_flat_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"
#include "pools/memory/available_memory.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace pagoda {
namespace {

// Takes the pages of these bytes. Their content stays.
absl::Status TakePages(absl::Span<std::byte> bytes) {
  const auto page = static_cast<uint64_t>(getpagesize());
  const auto begin = reinterpret_cast<uint64_t>(bytes.data());
  const uint64_t first = begin / page * page;
  if (madvise(reinterpret_cast<void*>(first), begin + bytes.size() - first, MADV_POPULATE_WRITE) ==
      0) {
    return absl::OkStatus();
  }
  const int error = errno;
  return MakeError(Reason::kOutOfMemory,
                   absl::StrCat("the system gives no memory for ", bytes.size(),
                                " bytes of a token-flat pool: ", std::strerror(error)));
}

}  // namespace

TokenFlatLayout::TokenFlatLayout(const PoolLayout& layout, uint32_t num_slots)
    : token_slots(uint64_t{num_slots} * layout.tokens_per_block),
      head_stride_bytes(uint64_t{layout.head_dim} * DTypeBytes(layout.dtype)),
      token_stride_bytes(head_stride_bytes * layout.num_kv_heads),
      kv_stride_bytes(token_stride_bytes * token_slots),
      layer_stride_bytes(kv_stride_bytes * layout.kv_factor) {
  PAGODA_CHECK(layout.content == PoolContent::kElements, "only elements lie in token slots");
}

TokenFlatPool::TokenFlatPool(SharedMemoryPool* pool)
    : pool_(*pool), layout_(pool->layout(), pool->num_slots()) {}

absl::Span<std::byte> TokenFlatPool::part(uint64_t index, uint32_t kv) const {
  return pool_.bytes().subspan(index * layout_.layer_stride_bytes + kv * layout_.kv_stride_bytes,
                               layout_.kv_stride_bytes);
}

absl::Status TokenFlatPool::Reserve(uint64_t token_slots) {
  if (token_slots > layout_.token_slots) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat(token_slots, " token slots of a pool of ", layout_.token_slots));
  }
  if (token_slots <= reserved_) return absl::OkStatus();
  const uint64_t first = reserved_ * layout_.token_stride_bytes;
  const uint64_t part_bytes = token_slots * layout_.token_stride_bytes - first;
  const PoolLayout& shape = pool_.layout();
  const uint64_t needed = part_bytes * shape.kv_factor * shape.layers.size();
  // Before the kernel ends a process because memory has run out.
  const absl::StatusOr<uint64_t> free = AvailableMemoryBytes();
  if (free.ok() && needed > *free) {
    return MakeError(Reason::kOutOfMemory,
                     absl::StrCat("a token-flat pool needs ", needed, " more bytes for ",
                                  token_slots, " token slots; ", *free, " are free"));
  }
  for (uint64_t i = 0; i < shape.layers.size(); ++i) {
    for (uint32_t kv = 0; kv < shape.kv_factor; ++kv) {
      if (absl::Status taken = TakePages(part(i, kv).subspan(first, part_bytes)); !taken.ok()) {
        return taken;
      }
    }
  }
  reserved_ = token_slots;
  return absl::OkStatus();
}

void TokenFlatPool::Copy(uint64_t source, uint64_t target, uint64_t count) {
  const uint64_t token = layout_.token_stride_bytes;
  for (uint64_t i = 0; i < pool_.layout().layers.size(); ++i) {
    for (uint32_t kv = 0; kv < pool_.layout().kv_factor; ++kv) {
      const absl::Span<std::byte> all = part(i, kv);
      const absl::Span<std::byte> from = all.subspan(source * token, count * token);
      const absl::Span<std::byte> to = all.subspan(target * token, count * token);
      std::memcpy(to.data(), from.data(), from.size());
    }
  }
}

}  // namespace pagoda

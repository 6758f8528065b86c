// One block on its way to or from a slab file, and the buffers that it takes. For SlabFile.
#ifndef PAGODA_POOLS_FILE_SLAB_OPERATION_H_
#define PAGODA_POOLS_FILE_SLAB_OPERATION_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "pools/file/slab_file.h"

namespace pagoda {

// Below IOV_MAX, with the header and the padding.
inline constexpr size_t kMaxPieces = 1000;

struct SlabFile::Operation {
  bool is_write = false;
  bool bounced = false;
  SlotIndex slot;
  std::vector<std::byte> record;         // Of a read: its first bytes.
  absl::InlinedVector<iovec, 4> pieces;  // Of a write: read only.
  uint64_t bytes = 0;
  slab::Hash128 hash = {};  // Of a write.
  Done done;

  void Add(absl::Span<const std::byte> piece) {
    if (piece.empty()) return;
    pieces.push_back({const_cast<std::byte*>(piece.data()), piece.size()});
    bytes += piece.size();
  }
  // And zeros, up to that many bytes.
  void CopyTo(std::byte* to, uint64_t num_bytes) const {
    std::memset(to + bytes, 0, num_bytes - bytes);
    for (const iovec& piece : pieces) {
      std::memcpy(to, piece.iov_base, piece.iov_len);
      to += piece.iov_len;
    }
  }
  void CopyFrom(const std::byte* from) {
    for (const iovec& piece : pieces) {
      std::memcpy(piece.iov_base, from, piece.iov_len);
      from += piece.iov_len;
    }
  }
  slab::Hash128 HashOfPieces() const {
    absl::InlinedVector<absl::Span<const std::byte>, 4> spans;
    for (const iovec& piece : pieces) {
      spans.emplace_back(static_cast<const std::byte*>(piece.iov_base), piece.iov_len);
    }
    return slab::HashOf(spans);
  }
};

// What a block in flight has beside its own memory. Aligned to a page.
struct SlabFile::Buffer {
 public:
  Buffer() : pages_(Allocate(2 * slab::kPageBytes)) {}

  slab::Page& header() { return *reinterpret_cast<slab::Page*>(pages_.get()); }
  const slab::Page& header() const { return *reinterpret_cast<const slab::Page*>(pages_.get()); }
  // Between the block's end and the page's.
  std::byte* padding() { return pages_.get() + slab::kPageBytes; }
  // Allocated at the first use, with that many bytes.
  std::byte* bounce(uint64_t num_bytes) {
    if (bounce_ == nullptr) bounce_ = Allocate(num_bytes);
    return bounce_.get();
  }

 private:
  struct Free {
    void operator()(std::byte* bytes) const {
      ::operator delete (bytes, std::align_val_t{slab::kPageBytes});
    }
  };
  using Memory = std::unique_ptr<std::byte, Free>;

  static Memory Allocate(uint64_t num_bytes) {
    auto* bytes =
        static_cast<std::byte*>(::operator new (num_bytes, std::align_val_t{slab::kPageBytes}));
    std::memset(bytes, 0, num_bytes);
    return Memory(bytes);
  }

  Memory pages_;
  Memory bounce_;
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_FILE_SLAB_OPERATION_H_

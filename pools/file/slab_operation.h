// One block on its way to or from a slab file, and its buffers. For SlabFile.
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

// The maximum number of pieces. Below IOV_MAX together with the header and the padding.
inline constexpr size_t kMaxPieces = 1000;

struct SlabFile::Operation {
  bool is_write = false;
  bool bounced = false;
  SlotIndex slot;
  std::vector<std::byte> record;         // A read's record prefix.
  absl::InlinedVector<iovec, 4> pieces;  // Only read by a write.
  uint64_t bytes = 0;
  slab::Hash128 hash = {};  // Set for a write.
  Done done;

  void Add(absl::Span<const std::byte> piece) {
    if (piece.empty()) return;
    pieces.push_back({const_cast<std::byte*>(piece.data()), piece.size()});
    bytes += piece.size();
  }
  // Pads with zeros to `num_bytes` bytes.
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

// The buffers of a block in flight. Aligned to a page.
struct SlabFile::Buffer {
 public:
  Buffer() : pages_(Allocate(2 * slab::kPageBytes)) {}

  slab::Page& header() { return *reinterpret_cast<slab::Page*>(pages_.get()); }
  const slab::Page& header() const { return *reinterpret_cast<const slab::Page*>(pages_.get()); }
  // The bytes between the block's end and the end of its page.
  std::byte* padding() { return pages_.get() + slab::kPageBytes; }
  // Allocated at the first use, with `num_bytes` bytes.
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

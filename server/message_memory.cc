#include "server/message_memory.h"

#include <algorithm>
#include <bit>

namespace pagoda::server {
namespace {

// The first block beyond the one that is kept, and the largest: a thread that has not made the
// arena begins with such a block.
constexpr size_t kStartBytes = size_t{4} << 10;
constexpr size_t kMostBytes = size_t{64} << 10;

}  // namespace

void MessageMemory::Reset() {
  if (arena_.has_value()) {
    const size_t used = arena_->SpaceUsed();
    arena_.reset();
    if (used > block_bytes_ && block_bytes_ < kMostKeptBytes) {
      block_bytes_ = std::min(std::bit_ceil(used), kMostKeptBytes);
      block_ = std::make_unique_for_overwrite<char[]>(block_bytes_);
    }
  }
  google::protobuf::ArenaOptions options;
  options.start_block_size = kStartBytes;
  options.max_block_size = kMostBytes;
  options.initial_block = block_.get();
  options.initial_block_size = block_bytes_;
  arena_.emplace(options);
}

}  // namespace pagoda::server

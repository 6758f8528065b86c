#include "server/peers/reply_queue.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "pools/store/stored_value.h"

namespace pagoda::server {

void ReplyQueue::Append(absl::string_view text) {
  if (pieces_.empty() || pieces_.back().cache != nullptr) pieces_.emplace_back();
  absl::StrAppend(&pieces_.back().text, text);
  bytes_ += text.size();
}

void ReplyQueue::AddLine(char kind, absl::string_view text) {
  Append(absl::StrCat(absl::string_view(&kind, 1), text, "\r\n"));
}

void ReplyQueue::AddInteger(int64_t number) { Append(absl::StrCat(":", number, "\r\n")); }

void ReplyQueue::AddArray(size_t elements) { Append(absl::StrCat("*", elements, "\r\n")); }

void ReplyQueue::AddBulk(absl::string_view bytes) {
  Append(absl::StrCat("$", bytes.size(), "\r\n", bytes, "\r\n"));
}

void ReplyQueue::AddValue(std::shared_ptr<PeerCache> cache, const PeerCache::Value& value) {
  Append(absl::StrCat(
      "$", value.bytes, "\r\n",
      absl::string_view(reinterpret_cast<const char*>(value.header.data()), value.header.size())));
  for (const PeerCache::Part& part : value.parts) {
    pieces_.push_back({.text = {}, .part = part, .cache = cache});
    bytes_ += part.bytes.size();
  }
  Append("\r\n");
}

bool ReplyQueue::Uses(const PeerCache* cache) const {
  return std::any_of(pieces_.begin(), pieces_.end(),
                     [cache](const Piece& piece) { return piece.cache.get() == cache; });
}

size_t ReplyQueue::Peek(absl::Span<iovec> out, size_t max_bytes,
                        absl::Span<std::byte> buffer) const {
  size_t count = 0;
  size_t offset = sent_;
  for (const Piece& piece : pieces_) {
    if (count == out.size() || max_bytes == 0) break;
    const void* bytes = piece.text.data();
    if (piece.cache != nullptr) {
      if (piece.size() > buffer.size()) break;
      const absl::Span<std::byte> copy = buffer.first(piece.size());
      buffer.remove_prefix(piece.size());
      std::memcpy(copy.data(), piece.part.bytes.data(), copy.size());
      // The copy is compared, because the slot can get other bytes at any time.
      if (ChecksumOf(copy) != piece.part.checksum) std::memset(copy.data(), 0, copy.size());
      bytes = copy.data();
    }
    const size_t size = std::min(piece.size() - offset, max_bytes);
    // The bytes are only read; iovec has no const.
    char* const begin = const_cast<char*>(static_cast<const char*>(bytes)) + offset;
    out[count++] = {.iov_base = begin, .iov_len = size};
    max_bytes -= size;
    offset = 0;
  }
  return count;
}

void ReplyQueue::Advance(size_t bytes) {
  bytes_ -= bytes;
  sent_ += bytes;
  while (!pieces_.empty() && sent_ >= pieces_.front().size()) {
    sent_ -= pieces_.front().size();
    pieces_.pop_front();
  }
}

}  // namespace pagoda::server

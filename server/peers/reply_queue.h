// The replies that a connection has not sent yet.
#ifndef PAGODA_SERVER_PEERS_REPLY_QUEUE_H_
#define PAGODA_SERVER_PEERS_REPLY_QUEUE_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/peers/peer_cache.h"

namespace pagoda::server {

// Replies of RESP2 in their order. Texts are copied when they are added. Parts of values are copied
// when they are sent: see PeerCache. Thread-compatible.
class ReplyQueue {
 public:
  // "+text", "-text" and so on. The text has no line ends.
  void AddText(absl::string_view text) { AddLine('+', text); }
  void AddError(absl::string_view text) { AddLine('-', text); }
  void AddInteger(int64_t number);
  void AddArray(size_t elements);  // The elements follow.
  void AddBulk(absl::string_view bytes);
  void AddNull() { Append("$-1\r\n"); }
  void AddValue(std::shared_ptr<PeerCache> cache, const PeerCache::Value& value);

  bool empty() const { return pieces_.empty(); }
  uint64_t bytes() const { return bytes_; }
  // Whether a part of a value of the cache is left.
  bool Uses(const PeerCache* cache) const;

  // One part, so that the copy is still in the processor's cache when it is sent.
  static constexpr size_t kBufferBytes = PeerCache::kPartBytes;
  // Writes the next pieces to `out`, at most `max_bytes` bytes. Returns how many entries it wrote.
  // Parts of values are copied to `buffer`, of kBufferBytes. A part whose slot has got other bytes
  // since PeerCache::Get is zeros, and the client sees that the value is not the block.
  size_t Peek(absl::Span<iovec> out, size_t max_bytes, absl::Span<std::byte> buffer) const;
  // The first `bytes` have been sent.
  void Advance(size_t bytes);

 private:
  struct Piece {
    std::string text;
    PeerCache::Part part;              // If there is no text.
    std::shared_ptr<PeerCache> cache;  // Owns the part; shared with the server. Null for a text.

    size_t size() const { return cache == nullptr ? text.size() : part.bytes.size(); }
  };

  void AddLine(char kind, absl::string_view text);
  void Append(absl::string_view text);

  std::deque<Piece> pieces_;
  size_t sent_ = 0;  // The bytes of the first piece that were sent.
  uint64_t bytes_ = 0;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_PEERS_REPLY_QUEUE_H_

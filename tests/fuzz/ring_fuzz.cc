// A ring in memory that the other side can write at any time: the daemon's reading side, and its
// writing side.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/check.h"
#include "tests/fuzz/byte_reader.h"
#include "tests/fuzz/planted.h"
#include "wire/ring/ring_reader.h"
#include "wire/ring/ring_writer.h"

namespace pagoda::fuzz {
namespace {

constexpr uint32_t kBytes = ring::kMinBytes;

// One ring with both its sides. Its parts are allocated apart, so that the sanitizer sees every
// access outside of the ring.
class Ring {
 public:
  // The other side writes one of its values, or anything into the ring.
  void Scribble(ByteReader& input) {
    honest_ = false;
    const uint64_t value = Number(input);
    switch (input.Below(4)) {
      case 0:
        return positions_->written.store(value);
      case 1:
        return positions_->read.store(value);
      case 2:
        data_[value % kBytes] = static_cast<char>(input.Byte());
        return;
      default:
        // A header of any length at a place where the reader may look next.
        const ring::MessageHeader header = {.bytes = static_cast<uint32_t>(value),
                                            .kind = input.Below(5)};
        std::memcpy(&data_[8 * input.Below(256)], &header, sizeof(header));
        positions_->written.store(positions_->read.load() + 8 * input.Below(256));
    }
  }

  void Write(const std::string& message) {
    const ring::Writer::Outcome outcome = writer_.Write(ring::Kind::kRequest, message);
    PAGODA_CHECK(outcome != ring::Writer::Outcome::kTooLarge ||
                     message.size() > ring::MaxMessageBytes(kBytes),
                 "a message that fits is not too large");
    if (!honest_) return;
    PAGODA_CHECK(outcome != ring::Writer::Outcome::kCorrupt, "an honest reader is not corrupt");
    if (outcome == ring::Writer::Outcome::kWritten) expected_.push_back(message);
  }

  // Reads until the ring is empty or damaged.
  void ReadAll() {
    ring::Kind kind;
    std::string message;
    ring::Reader::Outcome outcome = ring::Reader::Outcome::kMessage;
    for (size_t reads = 0; outcome == ring::Reader::Outcome::kMessage; ++reads) {
      PAGODA_CHECK(reads <= kBytes / ring::kAlignment, "a full ring ends");
      outcome = reader_.Read(&kind, &message);
      if (outcome == ring::Reader::Outcome::kMessage) Check(message);
    }
    PAGODA_CHECK(!honest_ || (outcome == ring::Reader::Outcome::kEmpty && expected_.empty()),
                 "an honest ring gives every message");
  }

 private:
  // Mostly near the values that matter.
  static uint64_t Number(ByteReader& input) {
    uint64_t value = 0;
    for (const uint8_t byte : input.Take(1 + input.Below(8))) value = value << 8 | byte;
    return value;
  }
  void Check(const std::string& message) {
    PAGODA_CHECK(message.size() <= ring::MaxMessageBytes(kBytes), "a message fits in the ring");
    if (!honest_) return;
    PAGODA_CHECK(!expected_.empty(), "a message was written before it is read");
    const size_t lost = Planted("LostByte") && message.size() > 100 ? 1 : 0;
    PAGODA_CHECK(message == expected_.front().substr(lost), "a message is read as it was written");
    expected_.pop_front();
  }

  const std::unique_ptr<ring::Positions> positions_ = std::make_unique<ring::Positions>();
  std::vector<char> data_ = std::vector<char>(kBytes);
  ring::Reader reader_{positions_.get(), data_.data(), kBytes};
  ring::Writer writer_{positions_.get(), data_.data(), kBytes};
  bool honest_ = true;
  std::deque<std::string> expected_;  // While the other side is honest.
};

void Run(ByteReader input) {
  Ring ring;
  while (!input.empty()) {
    switch (input.Below(8)) {
      case 0:
      case 1:
        ring.ReadAll();
        break;
      case 2:
        if (input.OneIn(8)) ring.Scribble(input);
        break;
      case 3:
        ring.Write(std::string(16 * size_t{input.Byte()} + input.Below(32), 'x'));
        break;
      default:
        const absl::Span<const uint8_t> bytes = input.Take(input.Byte());
        ring.Write(std::string(bytes.begin(), bytes.end()));
    }
  }
  ring.ReadAll();
}

}  // namespace
}  // namespace pagoda::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pagoda::fuzz::Run(pagoda::fuzz::ByteReader({data, size}));
  return 0;
}

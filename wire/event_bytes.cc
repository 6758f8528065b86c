#include "wire/event_bytes.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "events/client_key.h"
#include "wire/vocabulary.h"

namespace pagoda {

v1::RemovalReason RemovalReasonToProto(RemovalReason reason) {
  switch (reason) {
    case RemovalReason::kEvicted:
      return v1::REMOVAL_REASON_EVICTED;
    case RemovalReason::kDisplaced:
      return v1::REMOVAL_REASON_DISPLACED;
    case RemovalReason::kTakenOver:
      return v1::REMOVAL_REASON_TAKEN_OVER;
    case RemovalReason::kTruncated:
      return v1::REMOVAL_REASON_TRUNCATED;
    case RemovalReason::kInvalidated:
      return v1::REMOVAL_REASON_INVALIDATED;
    case RemovalReason::kCleared:
      return v1::REMOVAL_REASON_CLEARED;
    case RemovalReason::kReleased:
      return v1::REMOVAL_REASON_RELEASED;
    case RemovalReason::kLost:
      return v1::REMOVAL_REASON_LOST;
  }
  return v1::REMOVAL_REASON_UNSPECIFIED;
}

v1::RemovalScope RemovalScopeToProto(RemovedEvent::Scope scope) {
  switch (scope) {
    case RemovedEvent::Scope::kBlocks:
      return v1::REMOVAL_SCOPE_UNSPECIFIED;
    case RemovedEvent::Scope::kWindow:
      return v1::REMOVAL_SCOPE_WINDOW;
    case RemovedEvent::Scope::kPools:
      return v1::REMOVAL_SCOPE_POOLS;
  }
  return v1::REMOVAL_SCOPE_UNSPECIFIED;
}

v1::PinEnd PinEndToProto(PinEnd end) {
  switch (end) {
    case PinEnd::kUnpinned:
      return v1::PIN_END_UNPINNED;
    case PinEnd::kExpired:
      return v1::PIN_END_EXPIRED;
    case PinEnd::kPrefixLeft:
      return v1::PIN_END_PREFIX_LEFT;
  }
  return v1::PIN_END_UNSPECIFIED;
}

namespace {

constexpr int kVarint = 0;
constexpr int kFixed64 = 1;
constexpr int kBytes = 2;
constexpr size_t kMaxVarint = 10;

// Writes from the end of its memory to the front, because a message's length precedes its contents
// and is known only once they are written. Fields are written in falling order, so that they appear
// in rising order. REQUIRES: the memory is large enough.
class BackwardWriter {
 public:
  explicit BackwardWriter(char* end) : end_(end), at_(end) {}

  const char* data() const { return at_; }
  size_t size() const { return static_cast<size_t>(end_ - at_); }

  void Varint(uint64_t value) {
    at_ -= VarintSize(value);
    char* out = at_;
    for (; value >= 0x80; value >>= 7) *out++ = static_cast<char>(value | 0x80);
    *out = static_cast<char>(value);
  }
  void Tag(int field, int type) { Varint(static_cast<uint64_t>(field) << 3 | type); }

  // A field; left out if it has the default value.
  void Number(int field, uint64_t value) {
    if (value != 0) Present(field, value);
  }
  void Present(int field, uint64_t value) {
    Varint(value);
    Tag(field, kVarint);
  }
  void Fixed(int field, uint64_t value) {
    if (value != 0) PresentFixed(field, value);
  }
  void PresentFixed(int field, uint64_t value) {
    FixedBytes(value);
    Tag(field, kFixed64);
  }
  void FixedBytes(uint64_t value) {
    static_assert(std::endian::native == std::endian::little, "the wire is little-endian");
    at_ -= sizeof(value);
    std::memcpy(at_, &value, sizeof(value));
  }
  void Text(int field, std::string_view text) {
    if (text.empty()) return;
    at_ -= text.size();
    std::memcpy(at_, text.data(), text.size());
    Varint(text.size());
    Tag(field, kBytes);
  }
  // A packed field of fixed32.
  void FixedWords(int field, absl::Span<const uint32_t> words) {
    Text(field, {reinterpret_cast<const char*>(words.data()), words.size() * sizeof(uint32_t)});
  }
  // `contents` writes the message's contents. An empty message is left out if `keep_empty` is
  // false.
  template <class Contents>
  void Message(int field, Contents contents, bool keep_empty = true) {
    const size_t before = size();
    contents();
    if (size() == before && !keep_empty) return;
    Varint(size() - before);
    Tag(field, kBytes);
  }

 private:
  static size_t VarintSize(uint64_t value) {
    // 7 bits per byte: (9 * bits + 73) / 64, as in protobuf.
    return (static_cast<size_t>(std::bit_width(value | 1)) * 9 + 64) / 64;
  }

  char* const end_;
  char* at_;
};

// A packed repeated number.
template <class Ids>
void Packed(BackwardWriter& out, int field, const Ids& ids) {
  out.Message(
      field,
      [&] {
        for (size_t i = ids.size(); i > 0; --i) out.Varint(ids[i - 1].value());
      },
      /*keep_empty=*/false);
}

void PackedTiers(BackwardWriter& out, int field, TierSet tiers) {
  if (tiers.empty()) return;
  out.Message(field, [&] {
    for (size_t tier = kMaxTiers; tier > 0; --tier) {
      const auto one = static_cast<Tier>(tier - 1);
      if (tiers.contains(one)) out.Varint(TierToProto(one));
    }
  });
}

// Writes the oneof member for each type of event.
struct Writer {
  BackwardWriter& out;

  void operator()(const CreatedEvent& event) const {
    out.Message(4, [&] {
      Packed(out, 2, event.blocks);
      for (size_t tier = event.blocks_per_tier.size(); tier > 0; --tier) {
        const uint32_t blocks = event.blocks_per_tier[tier - 1];
        if (blocks == 0) continue;
        out.Message(1, [&] {
          out.Number(2, blocks);
          out.Number(1, TierToProto(static_cast<Tier>(tier - 1)));
        });
      }
    });
  }

  void operator()(const StoredEvent& event) const {
    out.Message(5, [&] {
      out.Number(5, event.content_hidden ? 1 : 0);
      const bool keyed = event.keyed();
      const bool with_count = (keyed || event.content_hidden) && !event.hashes_only;
      size_t token = event.tokens.size();
      for (size_t i = event.blocks.size(); i > 0; --i) {
        const StoredBlock& block = event.blocks[i - 1];
        const size_t begin = token - event.EntriesOf(block);
        out.Message(4, [&] {
          if (keyed && begin < token) out.Text(10, ClientKeyBytes(event.KeyAt(begin, block)));
          PackedTiers(out, 9, block.lower);
          if (with_count) out.Number(8, block.token_count);
          if (!event.extras.empty()) {
            Extras(absl::MakeConstSpan(event.extras).subspan(begin, token - begin));
          }
          out.Number(5, block.priority.value());
          out.Number(4, TierToProto(block.tier));
          if (!keyed) out.FixedWords(3, absl::MakeConstSpan(event.tokens).subspan(begin, token - begin));
          out.Fixed(2, block.hash.value());
          Id(1, block.id);
        });
        token = begin;
      }
      if (!event.hashes_only) out.Message(3, [&] { NameSpace(*event.name_space); });
      if (event.parent != kNoBlock) out.Present(2, event.parent.value());
      if (event.parent_hash.has_value()) out.PresentFixed(1, event.parent_hash->value());
    });
  }

  void operator()(const UpdatedEvent& event) const {
    out.Message(6, [&] {
      if (event.lower.has_value()) {
        out.Message(6, [&] {
          PackedTiers(out, 2, event.lower->new_value);
          PackedTiers(out, 1, event.lower->old_value);
        });
      }
      if (event.ended_pin.has_value()) {
        out.Message(5, [&] {
          if (event.ended_pin->removal.has_value()) {
            out.Number(3, RemovalReasonToProto(*event.ended_pin->removal));
          }
          out.Number(2, PinEndToProto(event.ended_pin->why));
          out.Number(1, event.ended_pin->pin.value());
        });
      }
      if (event.priority.has_value()) {
        out.Message(4, [&] {
          out.Number(2, event.priority->new_value.value());
          out.Number(1, event.priority->old_value.value());
        });
      }
      if (event.tier.has_value()) {
        out.Message(3, [&] {
          out.Number(2, TierToProto(event.tier->new_value));
          out.Number(1, TierToProto(event.tier->old_value));
        });
      }
      out.Fixed(2, event.hash.value());
      Id(1, event.id);
    });
  }

  void operator()(const RemovedEvent& event) const {
    out.Message(7, [&] {
      out.Number(4, RemovalScopeToProto(event.scope));
      out.Message(
          3,
          [&] {
            for (size_t i = event.hashes.size(); i > 0; --i) {
              out.FixedBytes(event.hashes[i - 1].value());
            }
          },
          /*keep_empty=*/false);
      Packed(out, 2, event.blocks);
      out.Number(1, RemovalReasonToProto(event.reason));
    });
  }

  // Those of one block.
  void Extras(absl::Span<const TokenExtra> extras) const {
    static_assert(std::endian::native == std::endian::little, "a digest's words are its bytes");
    const std::vector<MultimodalItem> items = ItemsOf(extras);
    for (auto item = items.rbegin(); item != items.rend(); ++item) {
      out.Message(7, [&] {
        out.Number(4, item->item_offset);
        out.Number(3, item->token_count);
        out.Number(2, item->token_start);
        out.Text(1, {reinterpret_cast<const char*>(item->digest.data()), sizeof(item->digest)});
      });
    }
    const auto has_id = [](const TokenExtra& extra) { return extra.extra_id != 0; };
    if (!std::any_of(extras.begin(), extras.end(), has_id)) return;
    out.Message(6, [&] {
      for (size_t i = extras.size(); i > 0; --i) out.Varint(extras[i - 1].extra_id);
    });
  }

  void Id(int field, BlockId id) const {
    if (id != kNoBlock) out.Number(field, id.value());
  }
  void NameSpace(const NamespaceKey& key) const {
    out.Number(4, key.keyed ? 1 : 0);
    out.Text(3, key.tenant);
    out.Text(2, key.cache_salt);
    if (key.lora_id.has_value()) out.Present(1, *key.lora_id);
  }
};

void Time(BackwardWriter& out, absl::Time time) {
  const timespec spec = absl::ToTimespec(time);
  out.Number(2, static_cast<uint64_t>(spec.tv_nsec));
  out.Number(1, static_cast<uint64_t>(spec.tv_sec));
}

// An upper bound of the event's encoded size in bytes.
struct Bound {
  size_t operator()(const CreatedEvent& event) const {
    return kMaxVarint * (event.blocks.size() + 4 * event.blocks_per_tier.size());
  }
  size_t operator()(const StoredEvent& event) const {
    // Each extra can begin an item.
    constexpr size_t kExtra = kMaxVarint + sizeof(ItemDigest) + 6 * kMaxVarint;
    return 7 * kMaxVarint * event.blocks.size() + 4 * event.tokens.size() +
           kExtra * event.extras.size() + 10 * kMaxVarint +
           event.name_space->cache_salt.size() + event.name_space->tenant.size();
  }
  size_t operator()(const UpdatedEvent&) const { return 16 * kMaxVarint; }
  size_t operator()(const RemovedEvent& event) const {
    return kMaxVarint * (event.blocks.size() + event.hashes.size() + 4);
  }
};

}  // namespace

void AppendEncoded(const Event& event, std::string* out) {
  constexpr int kEventsField = 5;
  constexpr size_t kEnvelopeBytes = 10 * kMaxVarint;
  const size_t bound = kEnvelopeBytes + std::visit(Bound{}, event.what);
  char small[512];
  std::vector<char> large;
  if (bound > sizeof(small)) large.resize(bound);
  char* const memory = large.empty() ? small : large.data();
  BackwardWriter writer(memory + bound);
  writer.Message(kEventsField, [&] {
    std::visit(Writer{writer}, event.what);
    writer.Number(3, WindowToProto(event.window));
    writer.Message(2, [&] { Time(writer, event.time); });
    writer.Number(1, event.revision.value());
  });
  out->append(writer.data(), writer.size());
}

}  // namespace pagoda

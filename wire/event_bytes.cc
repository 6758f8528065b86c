#include "wire/event_bytes.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "events/client_key.h"
#include "wire/bytes/backward_writer.h"
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
      const Tier one(tier - 1);
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
          out.Number(1, TierToProto(Tier(tier - 1)));
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
          if (!keyed)
            out.FixedWords(3, absl::MakeConstSpan(event.tokens).subspan(begin, token - begin));
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

}  // namespace

void AppendEncoded(const Event& event, std::string* out) {
  constexpr int kEventsField = 5;
  char memory[512];
  BackwardWriter writer(memory);
  writer.Message(kEventsField, [&] {
    std::visit(Writer{writer}, event.what);
    writer.Number(3, WindowToProto(event.window));
    writer.Message(2, [&] { Time(writer, event.time); });
    writer.Number(1, event.revision.value());
  });
  out->append(writer.data(), writer.size());
}

}  // namespace pagoda

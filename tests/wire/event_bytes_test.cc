#include "wire/event_bytes.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "events/client_key.h"
#include "pagoda/v1/events.pb.h"
#include "tests/wire/event_messages.h"

namespace pagoda {
namespace {

std::string ByProtobuf(const Event& event) {
  v1::WatchResponse message;
  EventToProto(event, message.add_events());
  return message.SerializeAsString();
}

std::string Encoded(const Event& event) {
  std::string bytes;
  AppendEncoded(event, &bytes);
  return bytes;
}

// Any event of any size, with default values (which the wire leaves out), small and maximal ones.
class RandomEvents {
 public:
  explicit RandomEvents(uint32_t seed) : random_(seed) {}

  Event Next() {
    Event event{.revision = Revision{Number()},
                .time = absl::UnixEpoch() + absl::Nanoseconds(static_cast<int64_t>(Number() >> 2)),
                .window = random_() % 3 == 0 ? WindowSize{Small()} : kFullAttention};
    switch (random_() % 4) {
      case 0:
        event.what = Created();
        break;
      case 1:
        event.what = Stored();
        break;
      case 2:
        event.what = Updated();
        break;
      default:
        event.what = Removed();
    }
    return event;
  }

 private:
  uint64_t Number() {
    const int bits = static_cast<int>(random_() % 65);
    return bits == 0 ? 0 : random_() >> (64 - bits);
  }
  uint32_t Small() { return static_cast<uint32_t>(Number() >> 32); }
  size_t Count() { return random_() % 8 == 0 ? random_() % 700 : random_() % 5; }
  BlockHash Hash() { return BlockHash{Number()}; }
  Tier AnyTier() { return Tier(random_() % kMaxTiers); }
  TierSet AnyTiers() {
    return TierSet::FromBits(static_cast<uint8_t>(random_() % 2 * (random_() % (1 << kMaxTiers))));
  }
  Priority AnyPriority() { return Priority{static_cast<uint8_t>(random_() % 101)}; }
  std::string Text() { return std::string(random_() % 2 == 0 ? 0 : random_() % 300, 's'); }

  CreatedEvent Created() {
    CreatedEvent event;
    if (random_() % 2 == 0) {
      event.blocks_per_tier = {Small(), Small()};
    } else {
      for (size_t i = Count(); i > 0; --i) event.blocks.push_back(BlockId{Small()});
    }
    return event;
  }
  StoredEvent Stored() {
    StoredEvent event;
    if (random_() % 2 == 0) {
      event.parent_hash = Hash();
      event.parent = BlockId{Small()};
    }
    NamespaceKey name_space;
    if (random_() % 3 == 0) name_space.lora_id = Number();
    name_space.cache_salt = Text();
    name_space.tenant = Text();
    name_space.keyed = random_() % 4 == 0;
    event.name_space = name_space;
    for (size_t i = Count(); i > 0; --i) {
      event.blocks.push_back({.id = BlockId{Small()},
                              .hash = Hash(),
                              .token_count = static_cast<uint32_t>(random_() % 40),
                              .tier = AnyTier(),
                              .priority = AnyPriority(),
                              .lower = AnyTiers()});
      if (name_space.keyed) {
        const ClientKey key = *ClientKey::Make(std::string(1 + random_() % 64, 'k'));
        event.tokens.insert(event.tokens.end(), key.words().begin(), key.words().end());
        continue;
      }
      for (uint32_t t = 0; t < event.blocks.back().token_count; ++t) {
        event.tokens.push_back(Small());
      }
    }
    if (!name_space.keyed && random_() % 4 == 0) {
      event.extras.resize(event.tokens.size());
      const bool has_ids = random_() % 2 == 0;
      for (TokenExtra& extra : event.extras) {
        if (has_ids) extra.extra_id = Number();
        if (random_() % 3 != 0) continue;
        extra.in_item = true;
        extra.digest = {random_() % 2, 0, 0, random_() % 2};
        extra.item_offset = static_cast<uint32_t>(random_() % 3);
      }
    }
    if (random_() % 8 == 0) return HashesOf(event);
    if (random_() % 8 == 0) {
      event.content_hidden = true;
      event.tokens.clear();
      event.extras.clear();
    }
    return event;
  }
  // The result of the projection onto hashes.
  static StoredEvent HashesOf(const StoredEvent& stored) {
    StoredEvent event{.hashes_only = true};
    for (const StoredBlock& block : stored.blocks) {
      event.blocks.push_back({.id = kNoBlock,
                              .hash = block.hash,
                              .tier = block.tier,
                              .priority = Priority{0},
                              .lower = block.lower});
    }
    return event;
  }
  UpdatedEvent Updated() {
    UpdatedEvent event{.id = BlockId{Small()}, .hash = Hash()};
    if (random_() % 8 == 0) event.id = kNoBlock;
    if (random_() % 2 == 0) event.tier = {AnyTier(), AnyTier()};
    if (random_() % 2 == 0) event.lower = {AnyTiers(), AnyTiers()};
    if (random_() % 2 == 0) event.priority = {AnyPriority(), AnyPriority()};
    if (random_() % 4 == 0) {
      event.ended_pin = EndedPin{.pin = PinId{Number()}, .why = static_cast<PinEnd>(random_() % 3)};
      if (random_() % 2 == 0) event.ended_pin->removal = static_cast<RemovalReason>(random_() % 9);
    }
    return event;
  }
  RemovedEvent Removed() {
    RemovedEvent event{.reason = static_cast<RemovalReason>(random_() % 9)};
    if (random_() % 8 == 0) {
      event.scope = random_() % 2 == 0 ? RemovedEvent::Scope::kWindow : RemovedEvent::Scope::kPools;
    }
    const bool hashes_only = random_() % 8 == 0;
    for (size_t i = Count(); i > 0; --i) {
      if (!hashes_only) event.blocks.push_back(BlockId{Small()});
      if (event.reason != RemovalReason::kReleased) event.hashes.push_back(Hash());
    }
    return event;
  }

  std::mt19937_64 random_;
};

TEST(EventEncoderTest, BytesAreThoseOfProtobuf) {
  RandomEvents events(7);
  for (int i = 0; i < 20'000; ++i) {
    const Event event = events.Next();
    ASSERT_EQ(Encoded(event), ByProtobuf(event)) << "event " << i;
  }
}

TEST(EventEncoderTest, EventsOneAfterAnotherAreOneMessage) {
  RandomEvents events(8);
  std::string bytes;
  v1::WatchResponse expected;
  for (int i = 0; i < 100; ++i) {
    const Event event = events.Next();
    AppendEncoded(event, &bytes);
    EventToProto(event, expected.add_events());
  }
  v1::WatchResponse envelope;
  envelope.set_revision(9);
  envelope.AppendToString(&bytes);
  expected.set_revision(9);
  v1::WatchResponse read;
  ASSERT_TRUE(read.ParseFromString(bytes));
  EXPECT_EQ(read.SerializeAsString(), expected.SerializeAsString());
}

}  // namespace
}  // namespace pagoda

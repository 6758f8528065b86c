#include "clients/pagodactl/events/event_text.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;

v1::Event Parse(const std::string& text) {
  v1::Event event;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "revision: 12 time { seconds: 1 nanos: 500000000 } " + text, &event));
  return event;
}

// The line with runs of spaces made one.
std::string Line(const std::string& text, v1::EventContent content = v1::EVENT_CONTENT_TOKENS) {
  std::string squeezed;
  for (char c : EventLine(Parse(text), Terminal{}, content)) {
    if (c != ' ' || squeezed.empty() || squeezed.back() != ' ') squeezed += c;
  }
  return squeezed;
}

constexpr char kStored[] =
    "stored { parent_hash: 255 parent_block_id: 3 namespace { cache_salt: 's' }"
    " blocks { block_id: 4 block_hash: 18446744073709551615 tokens: [1, 2] tier: TIER_PRIMARY"
    " priority: 35 } blocks { block_id: 5 tokens: 3 } }";

TEST(EventTextTest, LinesTellWhatHappened) {
  EXPECT_THAT(Line("created { capacity { tier: TIER_PRIMARY blocks: 64 } }"),
              HasSubstr("created full 64 - pools: primary 64"));
  EXPECT_THAT(Line("window_size: 128 created { block_ids: [7, 8] }"),
              HasSubstr("created 128 2 - blocks 7,8"));
  EXPECT_THAT(Line(kStored), HasSubstr("stored full 2 3 blocks 4,5 after 3, salt \"s\""));
  EXPECT_THAT(Line("stored { blocks { block_id: 1 tokens: 9 } }"),
              HasSubstr("stored full 1 1 block 1 at the root"));
  EXPECT_THAT(
      Line("updated { block_id: 4 tier { old_value: TIER_PRIMARY new_value: TIER_SECOND } }"),
      HasSubstr("updated full 1 - block 4, tier primary -> secondary"));
  EXPECT_THAT(Line("updated { block_id: 4 ended_pin { pin_id: 3 why: PIN_END_EXPIRED } }"),
              HasSubstr("updated full 1 - block 4, pin 3 ended: expired"));
  EXPECT_THAT(Line("updated { block_id: 4 ended_pin { pin_id: 3 why: PIN_END_PREFIX_LEFT "
                   "removal: REMOVAL_REASON_CLEARED } }"),
              HasSubstr("pin 3 ended: prefix left, cleared"));
  EXPECT_THAT(Line("stored { content_hidden: true blocks { block_id: 1 token_count: 4 } }"),
              HasSubstr("stored full 1 4 block 1 at the root, content hidden"));
  EXPECT_THAT(Line("removed { reason: REMOVAL_REASON_TAKEN_OVER block_ids: 4 }"),
              HasSubstr("removed full 1 - taken over: block 4"));
  EXPECT_THAT(Line("removed { reason: REMOVAL_REASON_CLEARED scope: REMOVAL_SCOPE_WINDOW }"),
              HasSubstr("removed full all - cleared: the whole window"));
  EXPECT_THAT(Line("removed { reason: REMOVAL_REASON_RELEASED scope: REMOVAL_SCOPE_POOLS }"),
              HasSubstr("removed full all - released: the pools"));
}

TEST(EventTextTest, TiersHaveTheNamesOfTheirCache) {
  v1::CacheInfo cache;
  for (const auto& [tier, name] : {std::pair(v1::TIER_PRIMARY, "hbm"), {v1::TIER_SECOND, "dram"}}) {
    cache.add_tiers()->set_tier(tier);
    cache.mutable_tiers(cache.tiers_size() - 1)->set_name(name);
  }
  const v1::Event created = Parse(
      "created { capacity { tier: TIER_PRIMARY blocks: 4 } capacity { tier: TIER_SECOND blocks: "
      "8 } }");
  const v1::Event moved = Parse(
      "updated { tier { old_value: TIER_PRIMARY new_value: TIER_SECOND }"
      " lower_tiers { old_value: TIER_SECOND } }");
  const v1::Event stored =
      Parse("stored { blocks { tier: TIER_PRIMARY lower_tiers: TIER_SECOND } }");
  const auto line = [&](const v1::Event& event,
                        v1::EventContent content = v1::EVENT_CONTENT_TOKENS) {
    return EventLine(event, Terminal{}, content, cache);
  };
  EXPECT_THAT(line(created), HasSubstr("pools: hbm 4, dram 8"));
  EXPECT_THAT(line(moved), HasSubstr("tier hbm -> dram, copies below dram -> none"));
  EXPECT_THAT(line(stored, v1::EVENT_CONTENT_HASHES), HasSubstr(" in hbm"));
  EXPECT_EQ(Summarize(created, cache).detail, "pools: hbm 4, dram 8");
}

TEST(EventTextTest, KeysAreHexadecimal) {
  const std::string text =
      "stored { namespace { keyed: true } blocks { block_id: 1 key: '\\001\\377' token_count: 4 }"
      " blocks { block_id: 2 key: 'ab' token_count: 4 } }";
  EXPECT_THAT(Line(text),
              HasSubstr("stored full 2 8 blocks 1,2 at the root, keyed, keys 01ff 6162"));
  std::string many = "stored { namespace { keyed: true }";
  for (int i = 0; i < 6; ++i) many += " blocks { key: 'k' token_count: 4 }";
  EXPECT_THAT(Line(many + " }"), HasSubstr("keys 6b 6b 6b 6b and 2 more"));
}

TEST(EventTextTest, OfHashesLinesTellHashesAndTiers) {
  const auto line = [](const std::string& text) { return Line(text, v1::EVENT_CONTENT_HASHES); };
  EXPECT_THAT(line("stored { blocks { block_hash: 255 tier: TIER_PRIMARY } }"),
              HasSubstr("stored full 1 - hash 00000000000000ff in primary"));
  EXPECT_THAT(line("stored { blocks { block_hash: 255 tier: TIER_PRIMARY lower_tiers: TIER_THIRD }"
                   " blocks { block_hash: 1 tier: TIER_SECOND } }"),
              HasSubstr("stored full 2 - hashes 00000000000000ff,0000000000000001 in primary 1, "
                        "secondary 1, 1 copy below"));
  EXPECT_THAT(
      line("updated { block_hash: 255 tier { old_value: TIER_PRIMARY new_value: TIER_SECOND } }"),
      HasSubstr("updated full 1 - hash 00000000000000ff, tier primary -> secondary"));
  EXPECT_THAT(line("removed { reason: REMOVAL_REASON_EVICTED block_hashes: [1, 2, 3, 4, 5] }"),
              HasSubstr("removed full 5 - evicted: hashes 0000000000000001,0000000000000002,"
                        "0000000000000003,0000000000000004,..."));
  EXPECT_THAT(line("removed { reason: REMOVAL_REASON_CLEARED scope: REMOVAL_SCOPE_WINDOW }"),
              HasSubstr("removed full all - cleared: the whole window"));
  EXPECT_THAT(line("created { capacity { tier: TIER_PRIMARY blocks: 64 } }"),
              HasSubstr("created full 64 - pools: primary 64"));
}

TEST(EventTextTest, LinesTellTheNamespaceAndWhatTokensHaveBeside) {
  EXPECT_THAT(
      Line("stored { namespace { lora_id: 0 tenant: 't' } blocks { block_id: 1 tokens: 9 } }"),
      HasSubstr("block 1 at the root, LoRA 0, tenant \"t\""));
  const std::string part = " multimodal_items { token_count: 1 }";
  EXPECT_THAT(Line("stored { blocks { block_id: 1 extra_token_ids: 4" + part + " } }"),
              HasSubstr("block 1 at the root, extra ids, 1 item part"));
  EXPECT_THAT(Line("stored { blocks {" + part + " } blocks {" + part + " } }"),
              HasSubstr("blocks 0,0 at the root, 2 item parts"));
  EXPECT_THAT(Line("stored { namespace { cache_salt: '\\033[2J' } blocks { block_id: 1 } }"),
              HasSubstr("salt \"\\033[2J\""))
      << "a terminal must not see it raw";
  EXPECT_THAT(Line("removed { reason: REMOVAL_REASON_LOST block_ids: 4 }"),
              HasSubstr("lost: block 4"));
}

TEST(EventTextTest, CopiesInFartherTiersAreTold) {
  const std::string up =
      "updated { block_id: 4 tier { old_value: TIER_SECOND new_value: TIER_PRIMARY }"
      " lower_tiers { new_value: [TIER_SECOND, TIER_THIRD] } }";
  EXPECT_THAT(Line(up), HasSubstr("block 4, tier secondary -> primary,"
                                  " copies below none -> secondary+tier2"));
  const std::string blocks =
      "stored { blocks { block_id: 1 lower_tiers: [TIER_SECOND, TIER_THIRD] }"
      " blocks { block_id: 2 } }";
  EXPECT_THAT(Line(blocks), HasSubstr("blocks 1,2 at the root, 2 copies below"));
}

TEST(EventTextTest, LongListsAreCut) {
  EXPECT_THAT(Line("removed { reason: REMOVAL_REASON_EVICTED block_ids: [1,2,3,4,5,6,7,8,9] }"),
              HasSubstr("9 - evicted: blocks 1,2,3,4,5,6,7,8,..."));
}

TEST(EventTextTest, LinesAlignUnderTheHeader) {
  const std::string header = EventHeader();
  const std::string line = EventLine(Parse(kStored), Terminal{});
  EXPECT_EQ(header.find("TYPE"), line.find("stored"));
  EXPECT_EQ(header.find("WINDOW"), line.find("full"));
  EXPECT_EQ(header.find("DETAILS"), line.find("blocks 4,5"));
}

TEST(EventTextTest, ASnapshotsLinesStandUnderTheHeaderToo) {
  v1::WatchResponse message;
  message.set_revision(1234);
  const std::string header = EventHeader();
  for (const std::string& line :
       {SnapshotBeginLine(Terminal{}), SnapshotEndLine(message, Terminal{})}) {
    EXPECT_EQ(header.find("WINDOW"), line.find("all"));
    EXPECT_EQ(header.find("DETAILS"),
              line.find(line.find("complete") == std::string::npos ? "a snap" : "the snap"));
  }
  EXPECT_THAT(SnapshotEndLine(message, Terminal{}), HasSubstr("1234"));
  v1::Event told = Parse(kStored);
  told.set_revision(0);
  EXPECT_THAT(EventLine(told, Terminal{}), testing::StartsWith("         -  "));
}

}  // namespace
}  // namespace pagoda

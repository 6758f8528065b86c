#include "pools/store/cluster_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "pools/store/resp.h"

namespace pagoda {
namespace {

const RedisAddress kAsked = {"asked", 7000};

resp::Value Reply(const std::string& bytes) { return (*resp::Parse(bytes))->value; }

TEST(ClusterMapTest, HashSlotsAreThoseOfTheSpecification) {
  EXPECT_EQ(HashSlot("123456789"), 0x31C3 % kHashSlots);  // CRC-16/XMODEM's check value.
  EXPECT_EQ(HashSlot("foo"), 12182);                      // CLUSTER KEYSLOT answers this.
  EXPECT_EQ(HashSlot("{user1000}.following"), HashSlot("{user1000}.followers"));
  EXPECT_EQ(HashSlot("{user1000}.following"), HashSlot("user1000"));
  EXPECT_NE(HashSlot("foo{}{bar}"), HashSlot("bar")) << "an empty tag is none";
  EXPECT_EQ(HashSlot("foo{{bar}}zap"), HashSlot("{bar"));
  EXPECT_EQ(HashSlot("foo{bar}{zap}"), HashSlot("bar"));
  EXPECT_EQ(HashSlot("foo{bar"), HashSlot("foo{bar")) << "no end";
}

TEST(ClusterMapTest, ParsesAddresses) {
  EXPECT_EQ(*ParseRedisAddress("redis-0.redis:7001"), (RedisAddress{"redis-0.redis", 7001}));
  EXPECT_EQ(*ParseRedisAddress("10.0.0.1"), (RedisAddress{"10.0.0.1", 6379}));
  EXPECT_EQ(*ParseRedisAddress("[::1]:7001"), (RedisAddress{"::1", 7001}));
  EXPECT_EQ(*ParseRedisAddress("[::1]"), (RedisAddress{"::1", 6379}));
  for (const char* text : {"", ":1", "a:", "a:0", "a:65536", "a:1x", "a:-1", "[::1", "::1:7000",
                           "redis://a", "u@a:1", "a b:1", "[::1]7001"}) {
    EXPECT_FALSE(ParseRedisAddress(text).ok()) << text;
  }
  EXPECT_EQ(ToString(RedisAddress{"::1", 5}), "[::1]:5");
  EXPECT_EQ(ToString(RedisAddress{"a", 5}), "a:5");
}

TEST(ClusterMapTest, ParsesClusterSlots) {
  auto map =
      ParseClusterSlots(Reply("*3\r\n"
                              "*4\r\n:0\r\n:99\r\n*3\r\n$2\r\nh1\r\n:1\r\n$2\r\nid\r\n*3\r\n$"
                              "2\r\nh2\r\n:2\r\n$1\r\ni\r\n"
                              "*3\r\n:200\r\n:16383\r\n*3\r\n$0\r\n\r\n:3\r\n$2\r\nid\r\n"
                              "*3\r\n:100\r\n:100\r\n*4\r\n$2\r\nh1\r\n:1\r\n$2\r\nid\r\n*0\r\n"),
                        kAsked);
  ASSERT_TRUE(map.ok()) << map.status();
  ASSERT_EQ(map->shards.size(), 2u);
  EXPECT_EQ(map->shards[0].primary, (RedisAddress{"h1", 1}));
  EXPECT_THAT(map->shards[0].replicas, testing::ElementsAre(RedisAddress{"h2", 2}));
  EXPECT_EQ(map->shards[1].primary, (RedisAddress{"asked", 3})) << "no name: the asked server's";
  EXPECT_EQ(map->shard_of_slot[99], 0);
  EXPECT_EQ(map->shard_of_slot[100], 0);
  EXPECT_EQ(map->shard_of_slot[101], ClusterMap::kNoShard);
  EXPECT_EQ(map->shard_of_slot[16383], 1);
}

TEST(ClusterMapTest, RefusesOtherReplies) {
  for (const char* bytes : {":1\r\n", "*1\r\n:1\r\n", "*1\r\n*2\r\n:0\r\n:1\r\n",
                            "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:1\r\n",
                            "*1\r\n*3\r\n:5\r\n:4\r\n*2\r\n$1\r\na\r\n:1\r\n",
                            "*1\r\n*3\r\n:-1\r\n:4\r\n*2\r\n$1\r\na\r\n:1\r\n",
                            "*1\r\n*3\r\n:0\r\n:4\r\n*2\r\n$1\r\na\r\n:0\r\n",
                            "*1\r\n*3\r\n:0\r\n:4\r\n*2\r\n$1\r\na\r\n:65536\r\n",
                            "*1\r\n*3\r\n:0\r\n:4\r\n*2\r\n:1\r\n:1\r\n",
                            "*1\r\n*3\r\n:0\r\n:4\r\n*1\r\n$1\r\na\r\n"}) {
    EXPECT_FALSE(ParseClusterSlots(Reply(bytes), kAsked).ok()) << bytes;
  }
}

TEST(ClusterMapTest, RefusesMoreServersThanTheBound) {
  const auto map_of = [](uint32_t servers) {
    std::string bytes = "*1\r\n*" + std::to_string(servers + 2) + "\r\n:0\r\n:16383\r\n";
    for (uint32_t i = 0; i < servers; ++i) {
      bytes += "*2\r\n$1\r\na\r\n:" + std::to_string(i + 1) + "\r\n";
    }
    return ParseClusterSlots(Reply(bytes), kAsked);
  };
  EXPECT_TRUE(map_of(kMaxClusterServers).ok());
  EXPECT_FALSE(map_of(kMaxClusterServers + 1).ok());
}

TEST(ClusterMapTest, ParsesRedirections) {
  auto moved = ParseRedirection("MOVED 3999 127.0.0.1:6381", kAsked);
  ASSERT_TRUE(moved.has_value());
  EXPECT_FALSE(moved->is_ask);
  EXPECT_EQ(moved->slot, 3999);
  EXPECT_EQ(moved->address, (RedisAddress{"127.0.0.1", 6381}));
  EXPECT_TRUE(ParseRedirection("ASK 1 h:2", kAsked)->is_ask);
  EXPECT_EQ(ParseRedirection("MOVED 1 ::1:6381", kAsked)->address, (RedisAddress{"::1", 6381}));
  EXPECT_EQ(ParseRedirection("MOVED 1 :6381", kAsked)->address, (RedisAddress{"asked", 6381}));
  for (const char* error : {"ERR x", "MOVED", "MOVED 1", "MOVED x h:1", "MOVED 16384 h:1",
                            "MOVED 1 h", "MOVED 1 h:x", "MOVED 1 h:1 more", "moved 1 h:1"}) {
    EXPECT_FALSE(ParseRedirection(error, kAsked).has_value()) << error;
  }
}

}  // namespace
}  // namespace pagoda

#include "server/config/source_patterns.h"

#include <gtest/gtest.h>

#include <string>

namespace pagoda::server {
namespace {

bool Allows(const std::string& pattern, const std::string& address) {
  const absl::StatusOr<SourcePatterns> patterns = SourcePatterns::Parse({pattern});
  EXPECT_TRUE(patterns.ok()) << patterns.status();
  const absl::StatusOr<RedisAddress> parsed = ParseRedisAddress(address);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return patterns->Allows(*parsed);
}

TEST(SourcePatternsTest, NumbersMatchAddressesAlone) {
  EXPECT_TRUE(Allows("10.0.0.*:7072", "10.0.0.1:7072"));
  EXPECT_TRUE(Allows("10.?.*.*:*", "10.0.250.17:1"));
  EXPECT_FALSE(Allows("10.0.0.*:7072", "10.0.0.1:7073"));
  EXPECT_FALSE(Allows("10.0.0.*:7072", "10.0.1.1:7072"));
  EXPECT_FALSE(Allows("10.?.*.*:*", "10.10.0.1:1"));
  EXPECT_FALSE(Allows("10.0.0.*:7072", "10.0.0.evil.example:7072"));
  EXPECT_FALSE(Allows("10.0.0.*:7072", "10.0.0.x:7072"));
  EXPECT_FALSE(Allows("*.*.*.*:7072", "a.b.c.d:7072"));
}

TEST(SourcePatternsTest, AWildcardEndsAtADot) {
  EXPECT_TRUE(Allows("node-*:7072", "node-17:7072"));
  EXPECT_TRUE(Allows("node-*.kv.svc:7072", "NODE-a.kv.svc:7072"));
  EXPECT_TRUE(Allows("n?:*", "n1:80"));
  EXPECT_FALSE(Allows("node-*:7072", "node-x.evil.example:7072"));
  EXPECT_FALSE(Allows("node-*.kv.svc:7072", "node-a.evil.kv.svc:7072"));
  EXPECT_FALSE(Allows("node-*:7072", "anode-1:7072"));
}

TEST(SourcePatternsTest, AnIpv6AddressMatchesItself) {
  EXPECT_TRUE(Allows("[fd00::1]:7072", "[fd00::1]:7072"));
  EXPECT_TRUE(Allows("[fd00::1]:*", "[fd00:0:0::1]:9"));
  EXPECT_FALSE(Allows("[fd00::1]:7072", "[fd00::2]:7072"));
  EXPECT_FALSE(Allows("*.*.*.*:*", "[::ffff:10.0.0.1]:7072"));
}

TEST(SourcePatternsTest, OtherFormsAreRefused) {
  for (const char* const pattern :
       {"node", ":7072", "node:", "node:0", "node:65536", "node:7*", "10.*:7072", "*:7072",
        "[::1:7", "[node]:7072", "no[d]e:7072", "a b:1", "fd00::1:7072"}) {
    EXPECT_FALSE(SourcePatterns::Parse({pattern}).ok()) << pattern;
  }
  EXPECT_TRUE(SourcePatterns::Parse({})->empty());
}

}  // namespace
}  // namespace pagoda::server

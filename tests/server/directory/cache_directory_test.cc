#include "server/directory/cache_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/error.h"

namespace pagoda::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr Identity kOperator{};
constexpr Identity kNobody{.role = Role::kTenant, .tenant = kDefaultTenant};
constexpr Identity kAlice{.role = Role::kTenant, .tenant = TenantId(1)};
constexpr Identity kBob{.role = Role::kTenant, .tenant = TenantId(2)};

CachePtr Cache(uint32_t number, const std::string& name, TenantId tenant = kDefaultTenant) {
  CacheParts parts;
  parts.number = number;
  parts.name = name;
  parts.tenant = tenant;
  return std::make_shared<const CacheParts>(std::move(parts));
}

SessionId SessionOf(uint32_t number, uint32_t id) {
  return SessionId(LastSessionBefore(number).value() + id);
}

TEST(CacheDirectoryTest, WithoutCachesNobodyFindsOne) {
  const CacheDirectory caches;
  EXPECT_EQ(ReasonOf(caches.Named("", kOperator).status()), Reason::kUnknownCache);
  EXPECT_EQ(ReasonOf(caches.Named("a", kOperator).status()), Reason::kUnknownCache);
  EXPECT_EQ(ReasonOf(caches.OfSession(SessionOf(0, 1)).status()), Reason::kUnknownSession);
  EXPECT_THAT(caches.All(), SizeIs(0));
}

TEST(CacheDirectoryTest, ASingleCacheNeedsNoName) {
  CacheDirectory caches;
  caches.Add(Cache(3, "a"));
  EXPECT_EQ((*caches.Named("", kOperator))->number, 3u);
  EXPECT_EQ((*caches.Named("a", kNobody))->number, 3u);
  const absl::Status unknown = caches.Named("b", kOperator).status();
  EXPECT_EQ(ReasonOf(unknown), Reason::kUnknownCache);
  EXPECT_THAT(std::string(unknown.message()), AllOf(HasSubstr("'b'"), HasSubstr("a")));
}

TEST(CacheDirectoryTest, OfSeveralOneIsNamed) {
  CacheDirectory caches;
  caches.Add(Cache(0, "first"));
  caches.Add(Cache(1, "second"));
  EXPECT_EQ((*caches.Named("second", kOperator))->number, 1u);
  const absl::Status unnamed = caches.Named("", kOperator).status();
  EXPECT_EQ(ReasonOf(unnamed), Reason::kCacheNotNamed);
  EXPECT_THAT(std::string(unnamed.message()), HasSubstr("first, second"));
}

TEST(CacheDirectoryTest, ATenantsCacheIsThereForItAndForOperators) {
  CacheDirectory caches;
  caches.Add(Cache(0, "common"));
  caches.Add(Cache(1, "alices", kAlice.tenant));
  EXPECT_TRUE(caches.Named("alices", kAlice).ok());
  EXPECT_TRUE(caches.Named("alices", kOperator).ok());
  for (const Identity& other : {kBob, kNobody}) {
    const absl::Status refused = caches.Named("alices", other).status();
    EXPECT_EQ(ReasonOf(refused), Reason::kUnknownCache);
    EXPECT_EQ((*caches.Named("", other))->number, 0u) << "the only one that it sees";
    EXPECT_THAT(caches.VisibleTo(other), SizeIs(1));
  }
  EXPECT_EQ(ReasonOf(caches.Named("", kAlice).status()), Reason::kCacheNotNamed);
  EXPECT_THAT(caches.VisibleTo(kAlice), SizeIs(2));
}

TEST(CacheDirectoryTest, ASessionSaysItsCache) {
  CacheDirectory caches;
  caches.Add(Cache(0, "first"));
  caches.Add(Cache(2, "third"));
  EXPECT_EQ((*caches.OfSession(SessionOf(0, 7)))->name, "first");
  EXPECT_EQ((*caches.OfSession(SessionOf(2, 1)))->name, "third");
  EXPECT_EQ(ReasonOf(caches.OfSession(SessionOf(3, 1)).status()), Reason::kUnknownSession);
}

TEST(CacheDirectoryTest, WhatIsRemovedIsFoundNoMoreAndLivesOnForThoseWhoHaveIt) {
  CacheDirectory caches;
  caches.Add(Cache(1, "a"));
  const CachePtr held = *caches.Named("a", kOperator);
  EXPECT_TRUE(caches.Serves(*held));
  caches.Remove(1);
  caches.Remove(1);  // Does nothing.
  EXPECT_FALSE(caches.Serves(*held));
  EXPECT_EQ(ReasonOf(caches.Named("a", kOperator).status()), Reason::kUnknownCache);
  EXPECT_EQ(ReasonOf(caches.OfSession(SessionOf(1, 1)).status()), Reason::kStaleSession);
  EXPECT_EQ(held->name, "a");
  EXPECT_EQ(held.use_count(), 1);
  const SessionRef gone{SessionOf(1, 1), SessionToken(1, 1)};
  EXPECT_FALSE(caches.Remembers({&gone, 1}).front());
}

}  // namespace
}  // namespace pagoda::server

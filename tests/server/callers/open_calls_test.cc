#include "server/callers/open_calls.h"

#include <gtest/gtest.h>

namespace pagoda::server {
namespace {

constexpr uint64_t kMaxCalls = 3;

// How many calls of the kind can begin, at most `most`. They stay open.
uint64_t CountBegun(OpenCalls& calls, CallKind kind, uint64_t most = 1000) {
  for (uint64_t begun = 0; begun < most; ++begun) {
    calls.Begin(kind);
    if (calls.CheckPlace(kind, kMaxCalls).ok()) continue;
    calls.End(kind);
    return begun;
  }
  return most;
}

TEST(OpenCallsTest, TheKindOfAMethod) {
  EXPECT_EQ(KindOf(MethodNamed("/pagoda.v1.CacheService/Execute")), CallKind::kOther);
  EXPECT_EQ(KindOf(MethodNamed("/pagoda.v1.CacheService/KeepAlive")), CallKind::kKeepAlive);
  EXPECT_EQ(KindOf(MethodNamed("/pagoda.v1.AdminService/GetStatus")), CallKind::kOperators);
  EXPECT_EQ(KindOf(MethodNamed("/pagoda.v1.AdminService/ListCaches")), CallKind::kOther);
}

TEST(OpenCallsTest, CallsBeyondTheLimitAreRefused) {
  OpenCalls calls;
  EXPECT_EQ(CountBegun(calls, CallKind::kOther), kMaxCalls);
  calls.Begin(CallKind::kOther);
  EXPECT_EQ(ReasonOf(calls.CheckPlace(CallKind::kOther, kMaxCalls)), Reason::kTooManyCalls);
  calls.End(CallKind::kOther);
  calls.End(CallKind::kOther);
  EXPECT_EQ(CountBegun(calls, CallKind::kOther), 1u);
}

TEST(OpenCallsTest, KeepAliveAndTheOperatorsHavePlacesOfTheirOwn) {
  for (const CallKind leaked : {CallKind::kOther, CallKind::kKeepAlive, CallKind::kOperators}) {
    OpenCalls calls;
    EXPECT_EQ(CountBegun(calls, leaked),
              leaked == CallKind::kOther ? kMaxCalls : OpenCalls::kKeptPlaces);
    for (const CallKind kind : {CallKind::kKeepAlive, CallKind::kOperators}) {
      const uint64_t left = kind == leaked ? 0 : OpenCalls::kKeptPlaces;
      EXPECT_EQ(CountBegun(calls, kind), left) << static_cast<int>(leaked);
    }
    EXPECT_EQ(CountBegun(calls, CallKind::kOther), 0u);
  }
}

TEST(OpenCallsTest, AKindCanHaveMoreThanItsOwnPlacesWhileThereIsRoom) {
  OpenCalls calls;
  constexpr uint64_t kMany = 10 * OpenCalls::kKeptPlaces;
  for (uint64_t i = 0; i < kMany; ++i) {
    calls.Begin(CallKind::kKeepAlive);
    EXPECT_TRUE(calls.CheckPlace(CallKind::kKeepAlive, kMany).ok());
  }
}

}  // namespace
}  // namespace pagoda::server

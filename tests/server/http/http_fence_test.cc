#include "server/http/http_fence.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/error.h"

namespace pagoda::server {
namespace {

TcpAddress Loopback() { return {"127.0.0.1", 7071}; }
TcpAddress Network() { return {"0.0.0.0", 7071}; }

class HttpFenceTest : public ::testing::Test {
 protected:
  HttpFence Make(const TcpAddress& address, bool knows_callers = false) const {
    return HttpFence({.address = address, .knows_callers = knows_callers}, authenticator_.get());
  }
  static HttpRequest From(const std::string& host, const std::string& origin) {
    return {.host = host, .origin = origin};
  }
  static Reason ReasonFor(const absl::Status& status) { return ReasonOf(status); }

  // No callers are configured.
  const std::unique_ptr<Authenticator> authenticator_ = *Authenticator::Create(Config());
};

TEST_F(HttpFenceTest, ARequestWithoutAnOriginIsNoPagesRequest) {
  EXPECT_TRUE(Make(Loopback()).CheckSite({.host = "localhost:7071"}).ok());
  EXPECT_TRUE(Make(Network()).CheckSite({.host = "cache.example:7071"}).ok());
}

TEST_F(HttpFenceTest, APageOfTheDaemonItselfMayAsk) {
  const HttpFence fence = Make(Network());
  EXPECT_TRUE(fence.CheckSite(From("cache.example:7071", "http://cache.example:7071")).ok());
  EXPECT_TRUE(fence.CheckSite(From("Cache.Example", "https://cache.example")).ok())
      << "behind a proxy with TLS";
}

TEST_F(HttpFenceTest, APageOfAnotherSiteMayNot) {
  for (const TcpAddress& address : {Loopback(), Network()}) {
    const HttpFence fence = Make(address);
    for (const char* origin : {"http://evil.example", "null", "", "http://localhost:7072",
                               "http://localhost", "http://localhost:7071.evil.example",
                               "localhost:7071", "http://x/http://localhost:7071"}) {
      EXPECT_EQ(ReasonFor(fence.CheckSite(From("localhost:7071", origin))),
                Reason::kPermissionDenied)
          << origin;
    }
  }
}

TEST_F(HttpFenceTest, OnLoopbackTheHostIsThisMachine) {
  EXPECT_TRUE(
      absl::IsFailedPrecondition(Make(Loopback()).CheckSite({.host = "evil.example:7071"})));
  // DNS rebinding: the page and the host are the same, and neither is this machine.
  EXPECT_TRUE(absl::IsFailedPrecondition(
      Make(Loopback()).CheckSite(From("evil.example:7071", "http://evil.example:7071"))));
}

TEST_F(HttpFenceTest, WhereNobodyIsConfiguredOnlyLoopbackHasOperators) {
  const absl::StatusOr<Identity> here = Make(Loopback()).Identify({.host = "localhost"});
  ASSERT_TRUE(here.ok());
  EXPECT_TRUE(here->is_operator());
  EXPECT_EQ(ReasonFor(Make(Network()).Identify({.host = "cache.example"}).status()),
            Reason::kPermissionDenied);
  EXPECT_TRUE(Make(Network(), /*knows_callers=*/true).Identify({.host = "cache.example"}).ok())
      << "the authenticator asks for credentials then";
}

TEST_F(HttpFenceTest, WhereNobodyIsConfiguredAProxysClientsAreNoOperators) {
  const HttpRequest passed_on{.host = "localhost", .proxy_header = "X-Forwarded-For"};
  EXPECT_EQ(ReasonFor(Make(Loopback()).Identify(passed_on).status()), Reason::kPermissionDenied);
  EXPECT_TRUE(Make(Loopback()).CheckSite(passed_on).ok()) << "what names nobody is for everybody";
  EXPECT_TRUE(Make(Loopback(), /*knows_callers=*/true).Identify(passed_on).ok())
      << "the authenticator asks for credentials then";
}

TEST_F(HttpFenceTest, WhoeverMayNotAskIsNotIdentified) {
  EXPECT_EQ(ReasonFor(Make(Loopback()).Identify(From("localhost", "http://evil.example")).status()),
            Reason::kPermissionDenied);
}

}  // namespace
}  // namespace pagoda::server

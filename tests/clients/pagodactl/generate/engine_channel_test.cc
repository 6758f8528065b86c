// Where the daemon's engine is for a client of the daemon.
#include "clients/pagodactl/generate/engine_channel.h"

#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/clients/fixtures/temp_directory.h"

namespace pagoda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Strings = std::vector<std::string>;

Strings Endpoints(const std::string& daemon, const Strings& addresses) {
  const absl::StatusOr<Strings> endpoints = EngineEndpoints(daemon, addresses);
  EXPECT_TRUE(endpoints.ok()) << daemon << ": " << endpoints.status();
  return endpoints.value_or(Strings());
}

absl::Status Refusal(const std::string& daemon, const Strings& addresses) {
  return EngineEndpoints(daemon, addresses).status();
}

TEST(EngineEndpointsTest, OnTheDaemonsMachineASocketIsTheBest) {
  const TempDirectory directory;
  const std::string path = directory.File("engine.sock");
  std::ofstream(path) << "";
  for (const char* daemon :
       {"unix:/run/pagodad.sock", "127.0.0.1:7070", "[::1]:7070", "ipv4:127.0.0.1:7070"}) {
    for (const std::string& socket : {"unix:" + path, "unix://" + path}) {
      EXPECT_THAT(Endpoints(daemon, {"127.0.0.1:7074", socket}),
                  ElementsAre(socket, "127.0.0.1:7074"));
    }
    EXPECT_THAT(Endpoints(daemon, {"unix:/nonexistent/engine.sock", "127.0.0.1:7074"}),
                ElementsAre("127.0.0.1:7074"));
  }
  EXPECT_THAT(Endpoints("node-1:7070", {"unix:" + path, "10.0.0.5:7074"}),
              ElementsAre("10.0.0.5:7074"))
      << "a file of another machine's socket";
}

TEST(EngineEndpointsTest, AnAddressOfAllInterfacesIsOneOfTheDaemonsHost) {
  EXPECT_THAT(Endpoints("node-1:7070", {"0.0.0.0:7074"}), ElementsAre("node-1:7074"));
  EXPECT_THAT(Endpoints("dns:///node-1:7070", {"[::]:7074"}), ElementsAre("node-1:7074"));
  EXPECT_THAT(Endpoints("[2001:db8::1]:7070", {"[::]:7074"}), ElementsAre("[2001:db8::1]:7074"));
  EXPECT_THAT(Endpoints("127.0.0.1:7070", {"0.0.0.0:7074"}), ElementsAre("127.0.0.1:7074"));
  EXPECT_THAT(Endpoints("unix:/run/pagodad.sock", {"0.0.0.0:7074"}), ElementsAre("127.0.0.1:7074"));
}

TEST(EngineEndpointsTest, AnotherAddressStays) {
  EXPECT_THAT(Endpoints("node-1:7070", {"10.0.0.5:7074"}), ElementsAre("10.0.0.5:7074"));
  EXPECT_THAT(Endpoints("127.0.0.1:7070", {"10.0.0.5:7074"}), ElementsAre("10.0.0.5:7074"));
  EXPECT_THAT(Endpoints("127.0.0.1:7070", {"[::1]:7074"}), ElementsAre("[::1]:7074"));
}

TEST(EngineEndpointsTest, ACertificateForLocalhostAloneIsEnough) {
  EXPECT_THAT(Endpoints("localhost:7070", {"127.0.0.1:7074"}), ElementsAre("localhost:7074"));
  EXPECT_THAT(Endpoints("dns:localhost:7070", {"[::1]:7074"}), ElementsAre("localhost:7074"));
}

TEST(EngineEndpointsTest, AnotherMachineCannotReachALoopbackAddress) {
  for (const char* address :
       {"127.0.0.1:7074", "127.1.2.3:7074", "[::1]:7074", "localhost:7074", "unix:/run/e.sock"}) {
    // The name of a remote host may begin with "127.".
    for (const char* daemon : {"node-1:7070", "10.0.0.5:7070", "127.example:7070"}) {
      const absl::Status refusal = Refusal(daemon, {address});
      EXPECT_TRUE(absl::IsFailedPrecondition(refusal)) << refusal;
      EXPECT_THAT(std::string(refusal.message()),
                  AllOf(HasSubstr("listens only on the daemon's machine"), HasSubstr(address),
                        HasSubstr("engine.grpc_address")));
    }
  }
  EXPECT_THAT(Endpoints("node-1:7070", {"127.0.0.1:7074", "10.0.0.5:7074"}),
              ElementsAre("10.0.0.5:7074"));
}

TEST(EngineEndpointsTest, ASocketThatIsNotHereIsNamed) {
  const absl::Status refusal = Refusal("unix:/run/pagodad.sock", {"unix:/nonexistent/e.sock"});
  EXPECT_TRUE(absl::IsFailedPrecondition(refusal)) << refusal;
  EXPECT_THAT(std::string(refusal.message()),
              AllOf(HasSubstr("unix:/nonexistent/e.sock"), HasSubstr("that socket is not here")));
}

}  // namespace
}  // namespace pagoda

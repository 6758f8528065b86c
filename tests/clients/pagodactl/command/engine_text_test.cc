#include "clients/pagodactl/command/engine_text.h"

#include "gtest/gtest.h"

namespace pagoda {
namespace {

v1::EngineStatus Engine(bool up, uint64_t restarts, const std::string& problem) {
  v1::EngineStatus engine;
  engine.set_up(up);
  engine.set_restarts(restarts);
  engine.set_problem(problem);
  return engine;
}

TEST(EngineTextTest, TheStateIsOneLine) {
  EXPECT_EQ(EngineStateText(Engine(true, 0, "")), "up");
  EXPECT_EQ(EngineStateText(Engine(true, 1, "signal 9 ended it")),
            "up, restarted 1 time: signal 9 ended it");
  EXPECT_EQ(EngineStateText(Engine(false, 0, "")), "not up");
  EXPECT_EQ(EngineStateText(Engine(false, 3, "no such\nfile \x1b[2J")),
            "not up, restarted 3 times: no such\\nfile \\u001b[2J");
}

TEST(EngineTextTest, OnlyAddressesThatExistAreShown) {
  v1::CacheEngine addresses;
  EXPECT_EQ(EngineAddressesText(addresses), "");
  addresses.set_http("127.0.0.1:7076");
  EXPECT_EQ(EngineAddressesText(addresses), "OpenAI's API at 127.0.0.1:7076");
  addresses.add_grpc("unix:/run/e.sock");
  addresses.add_grpc("127.0.0.1:7074");
  EXPECT_EQ(EngineAddressesText(addresses),
            "gRPC at unix:/run/e.sock and 127.0.0.1:7074, OpenAI's API at 127.0.0.1:7076");
  addresses.clear_http();
  EXPECT_EQ(EngineAddressesText(addresses), "gRPC at unix:/run/e.sock and 127.0.0.1:7074");
}

}  // namespace
}  // namespace pagoda

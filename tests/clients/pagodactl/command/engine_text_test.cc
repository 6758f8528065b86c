#include "clients/pagodactl/command/engine_text.h"

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

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
  EXPECT_EQ(EngineAddressesJson(addresses).dump(), R"({"grpc":[],"http":""})");
  addresses.set_http("127.0.0.1:7076");
  EXPECT_EQ(EngineAddressesText(addresses), "OpenAI's API at 127.0.0.1:7076");
  addresses.add_grpc("unix:/run/e.sock");
  addresses.add_grpc("127.0.0.1:7074");
  EXPECT_EQ(EngineAddressesText(addresses),
            "gRPC at unix:/run/e.sock and 127.0.0.1:7074, OpenAI's API at 127.0.0.1:7076");
  EXPECT_EQ(EngineAddressesJson(addresses).dump(),
            R"({"grpc":["unix:/run/e.sock","127.0.0.1:7074"],"http":"127.0.0.1:7076"})");
  addresses.clear_http();
  EXPECT_EQ(EngineAddressesText(addresses), "gRPC at unix:/run/e.sock and 127.0.0.1:7074");
}

TEST(EngineTextTest, AStatusWithoutAnEngineIsNull) {
  v1::GetStatusResponse status;
  EXPECT_TRUE(EngineJson(status).is_null());
  *status.mutable_engine() = Engine(false, 2, "why");
  EXPECT_EQ(EngineJson(status).dump(),
            R"({"model":"","architecture":"","vocab_size":0,"max_sequence_tokens":0,)"
            R"("running_requests":0,"waiting_requests":0,"up":false,"restarts":2,)"
            R"("problem":"why","addresses":{"grpc":[],"http":""}})");
}

}  // namespace
}  // namespace pagoda

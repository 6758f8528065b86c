// The section `engine`: what is accepted, and what contradicts other keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "server/config/config.h"

namespace pagoda::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Refusal(const std::string& text) {
  const absl::StatusOr<Config> config = ParseConfig(text, "pagodad.yaml");
  if (config.ok()) return "accepted";
  EXPECT_EQ(ReasonOf(config.status()), Reason::kInvalidArgument);
  return std::string(config.status().message());
}

// An engine computes on the device that holds its KV.
TEST(EngineConfigTest, AnEngineAndThePrimaryTierGoTogether) {
  const auto verdict = [](const std::string& cache, const std::string& engine) {
    return Refusal("cache: {" + cache + "}\nengine: {model_dir: x, " + engine + "}");
  };
  EXPECT_EQ(verdict("primary_memory: cuda", "backend: auto"), "accepted");
  EXPECT_EQ(verdict("primary_memory: host", "backend: cpu"), "accepted");
  EXPECT_EQ(verdict("primary_memory: auto", "backend: cpu"), "accepted");
  EXPECT_THAT(verdict("primary_memory: cuda", "backend: cpu"),
              AllOf(HasSubstr("engine.backend is cpu"), HasSubstr("primary_memory: host")));
  EXPECT_EQ(verdict("primary_memory: cuda", "gpu_attention: hopper, gpu_graphs: off"), "accepted");
  EXPECT_EQ(verdict("primary_memory: auto", "gpu_attention: sm80"), "accepted");
  EXPECT_EQ(verdict("primary_memory: host", "gpu_attention: auto"), "accepted");
  EXPECT_THAT(verdict("primary_memory: host", "gpu_attention: hopper"),
              HasSubstr("engine.gpu_attention is hopper"));
  EXPECT_THAT(verdict("primary_memory: auto", "backend: cpu, gpu_attention: sm80"),
              HasSubstr("computes on the CPU"));
  EXPECT_EQ(verdict("primary_memory: auto", "backend: cuda"), "accepted");
  EXPECT_THAT(verdict("primary_memory: host", "backend: cuda"),
              AllOf(HasSubstr("engine.backend is cuda"), HasSubstr("primary_memory: cuda")));
  EXPECT_THAT(verdict("warm_restart: true", "backend: cuda"),
              HasSubstr("GPU memory ends with the daemon"));
  // Without a model there is no engine, and no conflict.
  EXPECT_EQ(Refusal("cache: {primary_memory: host}\nengine: {backend: cuda}"), "accepted");
}

// The engine is a process that reaches the cache through the daemon's sockets.
TEST(EngineConfigTest, AnEngineHasAddressesAndNeedsTheDaemonsSockets) {
  const auto verdict = [](const std::string& server, const std::string& engine) {
    return Refusal("server: {" + server + "}\nengine: {model_dir: x, " + engine + "}");
  };
  EXPECT_EQ(verdict("unix_socket: /s", ""), "accepted");
  EXPECT_EQ(verdict("unix_socket: /s", "grpc_address: '', unix_socket: /e"), "accepted");
  EXPECT_THAT(verdict("unix_socket: ''", ""), HasSubstr("needs server.unix_socket"));
  EXPECT_THAT(verdict("unix_socket: /s, map_socket: ''", ""), HasSubstr("server.map_socket"));
  EXPECT_THAT(verdict("unix_socket: /s", "unix_socket: /s"), HasSubstr("are the same"));
  EXPECT_THAT(verdict("unix_socket: /s", "grpc_address: '', unix_socket: ''"),
              HasSubstr("both empty"));
  EXPECT_THAT(verdict("unix_socket: /s", "grpc_address: '0.0.0.0:1'"),
              HasSubstr("engine.grpc_address 0.0.0.0:1 would serve other machines without TLS"));
  EXPECT_THAT(verdict("unix_socket: /s", "http_address: '0.0.0.0:1'"),
              HasSubstr("engine.http_address"));
  EXPECT_EQ(verdict("unix_socket: /s, http_insecure: true", "http_address: '0.0.0.0:1'"),
            "accepted");
}

// A daemon without ports has an engine without ports.
TEST(EngineConfigTest, TheEngineListensWhereTheDaemonDoes) {
  const auto engine = [](const std::string& text) {
    const absl::StatusOr<Config> read = ParseConfig(text, "pagodad.yaml");
    // Printing says what the addresses stand for.
    return ParseConfig(PrintConfig(*read), "printed.yaml")->engine;
  };
  const Config::Engine all = engine("server: {unix_socket: /s}");
  EXPECT_EQ(all.unix_socket, "/s.engine");
  EXPECT_EQ(all.grpc_address, "127.0.0.1:7074");
  EXPECT_EQ(all.http_address, "127.0.0.1:7076");
  const Config::Engine socket =
      engine("server: {unix_socket: /s, grpc_address: '', http_address: ''}");
  EXPECT_EQ(socket.unix_socket, "/s.engine");
  EXPECT_EQ(socket.grpc_address, "");
  EXPECT_EQ(socket.http_address, "");
  EXPECT_EQ(engine("server: {unix_socket: ''}").unix_socket, "");
  const Config::Engine named = engine("engine: {grpc_address: 'localhost:1', http_address: ''}");
  EXPECT_EQ(named.grpc_address, "localhost:1");
  EXPECT_EQ(named.http_address, "");
}

}  // namespace
}  // namespace pagoda::server

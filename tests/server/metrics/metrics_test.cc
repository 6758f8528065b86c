#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "manager/shared_manager.h"
#include "server/daemon.h"
#include "server/directory/cache_directory.h"
#include "tests/server/test_daemon.h"

namespace pagoda::server {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Config HttpConfig() {
  Config config = TestConfig();
  config.server.http_address = "127.0.0.1:0";
  return config;
}

// The whole answer to one request, including its headers.
std::string Ask(const std::string& endpoint, const std::string& request_line,
                const std::string& headers = "") {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port =
      htons(static_cast<uint16_t>(std::atoi(endpoint.substr(endpoint.rfind(':') + 1).c_str())));
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    close(fd);
    return "no connection";
  }
  const std::string request =
      absl::StrCat(request_line, " HTTP/1.1\r\nHost: localhost\r\n", headers, "\r\n");
  EXPECT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;) answer.append(buffer, n);
  close(fd);
  return answer;
}

class MetricsTest : public DaemonTest {
 protected:
  MetricsTest() : DaemonTest(HttpConfig()) {}

  std::string Get(const std::string& path) {
    return Ask(daemon().http_endpoint(), absl::StrCat("GET ", path));
  }
  // A session that caches a prompt, finds it again, and takes 5 blocks.
  void Work() {
    const v1::SessionRef session = OpenRef();
    CacheTokens(session, TokensTo(9));
    CacheTokens(session, TokensTo(9));
    Allocate(session, 5);
  }
  // The metrics then, without the label that names the cache.
  std::string TextAfterWork();
};

// The text without the label that names the cache.
std::string WithoutCache(const std::string& text, const std::string& name) {
  const std::string label = absl::StrCat("cache=\"", name, "\"");
  return absl::StrReplaceAll(
      text, {{absl::StrCat("{", label, "} "), " "}, {absl::StrCat("{", label, ","), "{"}});
}

std::string MetricsTest::TextAfterWork() {
  Work();
  return WithoutCache(Get("/metrics"), daemon().manager().info().name);
}

// Each begins a line of the text.
void ExpectBeginningsOfLines(const std::string& text, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) EXPECT_THAT(text, HasSubstr(absl::StrCat("\n", line)));
}

TEST_F(MetricsTest, EachOfACacheHasItsName) {
  Work();
  const std::string text = Get("/metrics");
  const std::string name = daemon().manager().info().name;
  EXPECT_THAT(text, AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("version=0.0.4")));
  EXPECT_THAT(text, HasSubstr(absl::StrCat("pagoda_cache_info{cache=\"", name, "\",")));
  EXPECT_THAT(text, HasSubstr(absl::StrCat("pagoda_sessions{cache=\"", name, "\"} 1")));
}

TEST_F(MetricsTest, FollowBlocks) {
  const std::string text = TextAfterWork();
  const v1::TierStatus tier = Primary();
  const std::string labels = "{window=\"full\",tier=\"primary\"";
  ExpectBeginningsOfLines(
      text, {absl::StrCat("pagoda_block_capacity_blocks", labels, "} ", kTestBlocks),
             absl::StrCat("pagoda_blocks", labels, ",state=\"active\"} 5"),
             absl::StrCat("pagoda_blocks", labels, ",state=\"cached\"} ", tier.cached_blocks()),
             absl::StrCat("pagoda_blocks", labels, ",state=\"free\"} ", tier.free_blocks()),
             absl::StrCat("pagoda_blocks", labels, ",state=\"pinned\"} 0"),
             absl::StrCat("pagoda_blocks", labels, ",state=\"in_flight\"} 0"),
             absl::StrCat("pagoda_duplicate_blocks", labels, "} 0"),
             "pagoda_pool_bytes{tier=\"primary\",pages=\"plain\"} ",
             "pagoda_pool_bytes{tier=\"primary\",pages=\"transparent\"} 0",
             "pagoda_pool_bytes{tier=\"primary\",pages=\"2MiB\"} 0",
             "pagoda_pool_bytes{tier=\"primary\",pages=\"1GiB\"} 0",
             absl::StrCat("pagoda_block_bytes{window=\"full\"} ", tier.block_bytes()),
             "pagoda_allocated_blocks_total{", "pagoda_freed_blocks_total{"});
}

TEST_F(MetricsTest, FollowPrefixes) {
  ExpectBeginningsOfLines(
      TextAfterWork(),
      {"pagoda_prefix_lookup_tokens_total{window=\"full\"} 18",
       "pagoda_prefix_hit_tokens_total{window=\"full\",tier=\"primary\"} 8",
       "pagoda_offloaded_blocks_total{window=\"full\"} 0",
       "pagoda_freely_evicted_blocks_total{window=\"full\"} 0",
       "pagoda_onboarded_blocks_total{window=\"full\"} 0",
       "pagoda_partial_copies_total{window=\"full\"} ",
       "pagoda_merged_blocks_total{window=\"full\"} ",
       "pagoda_expired_priorities_total{window=\"full\"} 0", "pagoda_holes{window=\"full\"} 0",
       "pagoda_pinned_blocks{window=\"full\"} 0",
       absl::StrCat("pagoda_pin_budget_blocks{window=\"full\"} ", kTestBlocks / 4),
       ("pagoda_removed_blocks_total{window=\"full\",tier=\"primary\",reason="
        "\"evicted\"} 0")});
}

TEST_F(MetricsTest, FollowCopies) {
  ExpectBeginningsOfLines(
      TextAfterWork(),
      {"pagoda_copies_total{source=\"primary\",target=\"primary\"} ",
       "pagoda_copied_bytes_total{source=\"primary\",target=\"primary\"} ",
       "pagoda_copy_seconds_total{source=\"primary\",target=\"primary\"} ",
       "pagoda_failed_copies_total 0", "pagoda_running_copies 0", "pagoda_queued_copies 0",
       "pagoda_copy_latency_seconds_count{source=\"primary\",target=\"primary\"} "});
}

TEST_F(MetricsTest, FollowSessionsAndEvents) {
  ExpectBeginningsOfLines(
      TextAfterWork(),
      {"pagoda_pins 0", "pagoda_sessions 1", "pagoda_sequences 0", "pagoda_event_oldest_revision 1",
       "pagoda_event_subscribers 0", "pagoda_event_subscriber_max_lag_events 0",
       "pagoda_event_log_max_events ", "pagoda_events_total{type=\"stored\"} "});
}

TEST_F(MetricsTest, FollowCallsAndTheProcess) {
  ExpectBeginningsOfLines(
      TextAfterWork(),
      {"pagoda_operations_total{operation=\"allocate_blocks\"} 1",
       "pagoda_batch_duration_seconds_count 3",
       ("pagoda_grpc_requests_total{method=\"pagoda.v1.CacheService/Execute\","
        "code=\"OK\"} 3"),
       ("pagoda_grpc_request_duration_seconds_count{"
        "method=\"pagoda.v1.CacheService/Execute\"} 3"),
       "pagoda_build_info{version=\"", "pagoda_start_time_seconds ",
       "process_resident_memory_bytes ", "process_cpu_seconds_total ", "process_open_fds "});
}

TEST_F(MetricsTest, AClientThatTakesGzipGetsIt) {
  const std::string endpoint = daemon().http_endpoint();
  const std::string packed = Ask(endpoint, "GET /metrics", "Accept-Encoding: gzip\r\n");
  EXPECT_THAT(packed, AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("\r\nContent-Encoding: gzip\r\n"),
                            HasSubstr("\r\nVary: Accept-Encoding\r\n"),
                            HasSubstr("\r\n\r\n\x1f\x8b"), Not(HasSubstr("pagoda_build_info"))));
  const std::string plain = Get("/metrics");
  EXPECT_THAT(plain, AllOf(HasSubstr("\r\nVary: Accept-Encoding\r\n"),
                           Not(HasSubstr("Content-Encoding")), HasSubstr("pagoda_build_info")));
  EXPECT_LT(packed.size() * 4, plain.size());
  EXPECT_THAT(Ask(endpoint, "HEAD /metrics", "Accept-Encoding: gzip\r\n"),
              AllOf(HasSubstr("\r\nContent-Encoding: gzip\r\n"), EndsWith("\r\n\r\n")));
}

TEST_F(MetricsTest, FailedCallsAreCountedByTheirCode) {
  v1::BatchResult result;
  EXPECT_FALSE(Execute({}, {}, &result).ok());
  EXPECT_THAT(Get("/metrics"),
              HasSubstr("pagoda_grpc_requests_total{method=\"pagoda.v1.CacheService/Execute\","
                        "code=\"NOT_FOUND\"} 1"));
}

TEST_F(MetricsTest, HttpKnowsThreePathsAndOneMethod) {
  EXPECT_THAT(Get("/"), AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("/metrics")));
  EXPECT_THAT(Get("/healthz"), AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("\r\n\r\nok\n")));
  EXPECT_THAT(Get("/missing"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Get("/metrics/more"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Ask(daemon().http_endpoint(), "DELETE /metrics"), StartsWith("HTTP/1.1 405"));
}

TEST_F(MetricsTest, ADrainedDaemonIsNotHealthyForProbes) {
  daemon().Drain();
  EXPECT_THAT(Get("/healthz"), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("draining")));
}

TEST_F(MetricsTest, ATakenHttpPortIsAnError) {
  Config second = TestConfig();
  second.server.http_address = daemon().http_endpoint();
  const auto refused = Daemon::Start(second);
  EXPECT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr(daemon().http_endpoint()));
}

}  // namespace
}  // namespace pagoda::server

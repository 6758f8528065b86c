#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <semaphore>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "server/http/http_server.h"

namespace pagoda::server {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ProbesTest : public ::testing::Test {
 protected:
  ProbesTest() {
    auto server = HttpServer::StartProbes(
        {"127.0.0.1", 0},
        {{"/livez", [](const HttpRequest&) { return HttpResponse{.body = "ok\n"}; }},
         {"/readyz",
          [](const HttpRequest&) { return HttpResponse{.status = 503, .body = "draining\n"}; }}});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  int Connect() const {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(server_->address().port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit = {.tv_sec = 20, .tv_usec = 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }
  static void Send(int fd, const std::string& text) {
    EXPECT_EQ(send(fd, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  // Reads until the connection ends.
  static std::string ReadAll(int fd) {
    std::string answer;
    char buffer[4096];
    ssize_t count;
    while ((count = recv(fd, buffer, sizeof(buffer), 0)) > 0) answer.append(buffer, count);
    close(fd);
    return answer;
  }
  std::string Ask(const std::string& request) const {
    const int fd = Connect();
    Send(fd, request);
    return ReadAll(fd);
  }

  std::unique_ptr<HttpServer> server_;
};

TEST_F(ProbesTest, AnswersItsRoutes) {
  const std::string alive = Ask("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(alive, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(alive, HasSubstr("Content-Length: 3\r\n"));
  EXPECT_THAT(alive, EndsWith("\r\n\r\nok\n"));
  EXPECT_THAT(Ask("GET /readyz?verbose HTTP/1.0\r\n\r\n"),
              StartsWith("HTTP/1.1 503 Service Unavailable\r\n"));
  EXPECT_THAT(Ask("HEAD /livez HTTP/1.1\r\n\r\n"), EndsWith("\r\n\r\n"));
}

TEST_F(ProbesTest, RefusesWhatIsNoProbe) {
  EXPECT_THAT(Ask("GET /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Ask("POST /livez HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(Ask("nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
}

TEST_F(ProbesTest, AConnectionThatSaysNothingIsClosed) {
  const absl::Time start = absl::Now();
  EXPECT_EQ(ReadAll(Connect()), "");
  EXPECT_GE(absl::Now() - start, HttpServer::kProbeTime - absl::Milliseconds(50));
}

TEST_F(ProbesTest, SilentConnectionsHoldUpNoProbe) {
  std::vector<int> silent;
  absl::Duration longest;
  // Four times the limit, so most are replaced.
  for (size_t i = 0; i < 4 * HttpServer::kMaxProbes; ++i) {
    silent.push_back(Connect());
    if (i % 64 != 63) continue;
    const absl::Time start = absl::Now();
    EXPECT_THAT(Ask("GET /livez HTTP/1.1\r\n\r\n"), EndsWith("ok\n"));
    longest = std::max(longest, absl::Now() - start);
  }
  EXPECT_LT(longest, HttpServer::kProbeTime) << "a probe waited for those to be given up";
  // The oldest was replaced at once: it has ended, although its time may not be over.
  EXPECT_EQ(ReadAll(silent.front()), "");
  for (size_t i = 1; i < silent.size(); ++i) close(silent[i]);
}

// A route that blocks the thread, so that later requests are pending at the same time.
class HeldProbesTest : public ProbesTest {
 protected:
  HeldProbesTest() {
    const auto held = [this](const HttpRequest&) {
      entered_.release();
      leave_.acquire();
      return HttpResponse{.body = "held\n"};
    };
    server_ = HttpServer::StartProbes(
                  {"127.0.0.1", 0},
                  {{"/livez", [](const HttpRequest&) { return HttpResponse{.body = "ok\n"}; }},
                   {"/held", held}})
                  .value();
  }

  std::counting_semaphore<> entered_{0};
  std::counting_semaphore<> leave_{0};
};

TEST_F(HeldProbesTest, ABurstDropsNoProbeWhoseRequestHasCome) {
  const std::string held = "GET /held HTTP/1.1\r\n\r\n";
  const int probe = Connect();
  const int first = Connect();
  Send(first, held);
  entered_.acquire();
  // Its request is already there, so the server answers it while it is still accepting.
  const int second = Connect();
  Send(second, held);
  leave_.release();
  entered_.acquire();
  Send(probe, "GET /livez HTTP/1.1\r\n\r\n");
  std::vector<int> burst;
  for (size_t i = 0; i < 2 * HttpServer::kMaxProbes; ++i) burst.push_back(Connect());
  leave_.release();
  EXPECT_THAT(ReadAll(probe), EndsWith("ok\n")) << "the oldest, and its request was there";
  for (const int fd : {first, second}) EXPECT_THAT(ReadAll(fd), EndsWith("held\n"));
  for (const int fd : burst) close(fd);
}

TEST_F(ProbesTest, EndsWithConnectionsOpen) {
  const int fd = Connect();
  Send(fd, "GET /l");
  const absl::Time start = absl::Now();
  server_.reset();
  EXPECT_LT(absl::Now() - start, absl::Seconds(1));
  EXPECT_THAT(ReadAll(fd), Not(HasSubstr("200")));
}

}  // namespace
}  // namespace pagoda::server

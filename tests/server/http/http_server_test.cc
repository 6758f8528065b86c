#include "server/http/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/error.h"
#include "server/http/http_request.h"
#include "server/http/socket_exchange.h"

namespace pagoda::server {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class HttpServerTest : public ::testing::Test {
 protected:
  int Connect() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(server_->address().port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }
  static void Send(int fd, const std::string& text) {
    EXPECT_EQ(send(fd, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  // Everything that the server sends until it closes the connection.
  std::string Ask(const std::string& request) {
    const int fd = Connect();
    Send(fd, request);
    return Rest(fd);
  }
  static std::string Rest(int fd) {
    std::string answer;
    char buffer[4096];
    ssize_t count;
    while ((count = recv(fd, buffer, sizeof(buffer), 0)) > 0) answer.append(buffer, count);
    close(fd);
    return answer;
  }
  static std::string Read(int fd, size_t bytes) {
    std::string text(bytes, '-');
    EXPECT_EQ(recv(fd, text.data(), bytes, MSG_WAITALL), static_cast<ssize_t>(bytes));
    return text;
  }

  // Answers with the request's data.
  static HttpResponse Echo(const HttpRequest& request) {
    return {.content_type = "text/plain",
            .body = request.query + "|" + request.host + "|" + request.authorization.value_or("-"),
            .headers = {{"X-Own", "7"}}};
  }

  // Runs a function with the body.
  class Task final : public HttpPost {
   public:
    using Body = const absl::StatusOr<std::string>&;
    explicit Task(std::function<void(Body, HttpExchange&)> run) : run_(std::move(run)) {}
    absl::Status Keep(size_t bytes) override {
      kept_ += bytes;
      return kept_ <= kMostKept ? absl::OkStatus()
                                : MakeError(Reason::kTooManyCalls, "no memory for the body");
    }
    void Run(absl::StatusOr<std::string> body, HttpExchange& exchange) override {
      run_(body, exchange);
    }

   private:
    size_t kept_ = 0;
    const std::function<void(Body, HttpExchange&)> run_;
  };
  static std::function<HttpServer::Admission(const HttpRequest&)> Post(
      const std::function<void(Task::Body, HttpExchange&)>& run) {
    return [run](const HttpRequest&) { return std::make_unique<Task>(run); };
  }

  static void Take(Task::Body body, HttpExchange& exchange) {
    if (body.ok()) return exchange.Answer({.body = *body});
    exchange.Answer({.status = 413, .body = std::string(body.status().message())});
  }
  // Writes until the client has disconnected.
  void Pour(HttpExchange& exchange) {
    exchange.BeginStream("text/plain");
    exchange.Write("first");
    while (exchange.ClientIsThere()) absl::SleepFor(absl::Milliseconds(5));
    poured_.Notify();
  }
  static void Drip(HttpExchange& exchange) {
    exchange.BeginStream("text/plain");
    for (const char* piece : {"a", "", "bc"}) EXPECT_TRUE(exchange.Write(piece));
    EXPECT_TRUE(exchange.ClientIsThere());
    exchange.EndStream();
  }

  static constexpr size_t kMaxBody = 1000;
  static constexpr size_t kMostKept = 2000;
  static constexpr size_t kLargeBytes = 8 << 20;  // More than the kernel keeps for a client.
  absl::Notification poured_;
  absl::Notification may_answer_;
  std::unique_ptr<HttpServer> server_ = *HttpServer::Start(
      {"127.0.0.1", 0},
      {.probes = {{"/livez", [](const HttpRequest&) { return HttpResponse{.body = "ok\n"}; }}},
       .routes = {{"/echo", Echo},
                  {"/large",
                   [](const HttpRequest&) {
                     return HttpResponse{.body = std::string(kLargeBytes, 'x')};
                   }},
                  {"/wait",
                   [this](const HttpRequest&) {
                     may_answer_.WaitForNotification();
                     return HttpResponse{};
                   }}},
       .posts = {
           .routes = {{"/take", Post(Take)},
                      {"/closed", [](const HttpRequest&) { return HttpResponse{.status = 401}; }},
                      {"/drip", Post([](Task::Body, HttpExchange& e) { Drip(e); })},
                      {"/pour", Post([this](Task::Body, HttpExchange& e) { Pour(e); })}},
           .threads = 2,
           .max_body_bytes = kMaxBody}});
};

TEST_F(HttpServerTest, AnswersWhatItHasAndRefusesTheRest) {
  const std::string answer = Ask("GET /livez HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nok\n"));
  const std::string head = Ask("HEAD /livez HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(head, EndsWith("\r\n\r\n"));
  EXPECT_THAT(Ask("GET /other HTTP/1.1\r\nHost: a\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Ask("DELETE /livez HTTP/1.1\r\nHost: a\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(Ask("no request\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask("GET /livez HTTP/1.1\r\nA: " + std::string(kMaxHeadBytes, 'a')),
              StartsWith("HTTP/1.1 431 "));
}

TEST_F(HttpServerTest, ARouteIsToldTheQueryAndTheHeaders) {
  EXPECT_THAT(Ask("GET /echo?a=1&b=%20 HTTP/1.1\r\nHost: h:7\r\nauthorization: Bearer t\r\n\r\n"),
              EndsWith("\r\n\r\na=1&b=%20|h:7|Bearer t"));
  EXPECT_THAT(Ask("GET /echo HTTP/1.0\r\n\r\n"), EndsWith("\r\n\r\n||-"));
}

TEST_F(HttpServerTest, AnAnswerHasItsOwnHeadersBesideThoseOfAll) {
  const std::string answer = Ask("GET /echo HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("\r\nX-Own: 7\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nX-Content-Type-Options: nosniff\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nCache-Control: no-store\r\n"));
  EXPECT_THAT(answer, Not(HasSubstr("Access-Control")));
}

TEST_F(HttpServerTest, UnderApiRefusalsAreJson) {
  EXPECT_THAT(Ask("GET /api/v1/none HTTP/1.1\r\nHost: a\r\n\r\n"),
              EndsWith(R"({"error":{"reason":"NOT_FOUND","message":"not found"}})"));
  EXPECT_THAT(Ask("GET /v1/none HTTP/1.1\r\nHost: a\r\n\r\n"),
              EndsWith(R"({"error":{"message":"not found","type":"invalid_request_error",)"
                       R"("param":null,"code":"not_found"}})"));
  EXPECT_THAT(Ask("GET /none HTTP/1.1\r\nHost: a\r\n\r\n"), EndsWith("\r\n\r\nnot found\n"));
}

TEST_F(HttpServerTest, APostBringsABody) {
  EXPECT_THAT(Ask("POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"),
              EndsWith("\r\n\r\nhello"));
  EXPECT_THAT(Ask("POST /take HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                  "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"),
              EndsWith("\r\n\r\nhello"));
  EXPECT_THAT(Ask("POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n"),
              StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(Ask("GET /take HTTP/1.1\r\nHost: a\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(Ask("POST /other HTTP/1.1\r\nHost: a\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Ask("POST /livez HTTP/1.1\r\nHost: a\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
}

TEST_F(HttpServerTest, ARefusalComesBeforeTheBodyAndEndsTheConnection) {
  const std::string length = " HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n";
  EXPECT_THAT(Ask("POST /closed" + length), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(Ask("POST /other" + length), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Ask("POST /closed" + length + std::string(500, 'a')), StartsWith("HTTP/1.1 401 "));
}

TEST_F(HttpServerTest, AClientThatAsksBeforeItSendsIsToldToGoOn) {
  const std::string expect = " HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: ";
  const int fd = Connect();
  Send(fd, "POST /take" + expect + "2\r\n\r\n");
  EXPECT_EQ(Read(fd, 25), "HTTP/1.1 100 Continue\r\n\r\n");
  Send(fd, "hi");
  EXPECT_THAT(Rest(fd), EndsWith("\r\n\r\nhi"));
  EXPECT_THAT(Ask("POST /take" + expect + "1001\r\n\r\n"), StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(Ask("POST /closed" + expect + "2\r\n\r\n"), StartsWith("HTTP/1.1 401 "));
}

TEST_F(HttpServerTest, ABodyWithoutMemoryIsRefused) {
  // Each chunk of a byte takes six bytes on the wire.
  std::string chunks;
  for (int i = 0; i < 500; ++i) chunks += "1\r\na\r\n";
  EXPECT_THAT(Ask("POST /take HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks),
              EndsWith("no memory for the body"));
}

TEST_F(HttpServerTest, BadChunksAreRefused) {
  for (const char* chunks : {"x\r\n", "-1\r\n", "1\r\nab\r\n", "1;\n", "ffffffffffffffff\r\n"}) {
    EXPECT_THAT(Ask(std::string("POST /take HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n") +
                    chunks + "0\r\n\r\n"),
                EndsWith("not in valid chunks"))
        << chunks;
  }
}

// A slow body takes no thread: more of them than there are threads, and one request that has one.
TEST_F(HttpServerTest, BodiesThatDoNotEndKeepNoThread) {
  std::vector<int> slow;
  for (int i = 0; i < 50; ++i) {
    slow.push_back(Connect());
    Send(slow.back(), "POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\na");
  }
  EXPECT_THAT(Ask("POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"),
              EndsWith("\r\n\r\nhello"));
  char byte;
  EXPECT_LT(recv(slow.front(), &byte, 1, MSG_DONTWAIT), 0) << "the slow ones still wait";
  for (const int fd : slow) close(fd);
}

// One deadline for the head and the body: a byte now and then does not move it.
TEST_F(HttpServerTest, ARequestHasOneDeadline) {
  const int fd = Connect();
  Send(fd, "POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n");
  const absl::Time start = absl::Now();
  char byte;
  while (recv(fd, &byte, 1, MSG_DONTWAIT) < 0) {
    ASSERT_LT(absl::Now() - start, absl::Minutes(1));
    (void)!send(fd, "a", 1, MSG_NOSIGNAL);
    absl::SleepFor(absl::Milliseconds(50));
  }
  EXPECT_GE(absl::Now() - start, HttpServer::kRequestTime - absl::Seconds(1));
  EXPECT_THAT(Rest(fd), EndsWith("took longer than 10s"));
}

TEST_F(HttpServerTest, ProbesAreAnsweredBesideRoutesThatWait) {
  std::vector<int> waiting;
  for (int i = 0; i < 100; ++i) {
    waiting.push_back(Connect());
    Send(waiting.back(), "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
  }
  EXPECT_THAT(Ask("GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
  may_answer_.Notify();
  for (const int fd : waiting) EXPECT_THAT(Rest(fd), StartsWith("HTTP/1.1 200 "));
}

// They have their answers, and do not close.
TEST_F(HttpServerTest, ClientsThatLingerCutNoAnswerOfAnother) {
  const int slow = Connect();
  Send(slow, "GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::string begin = Read(slow, 1000);
  std::vector<int> lingering;
  for (size_t i = 0; i < HttpServer::kMaxAnswering + 50; ++i) {
    lingering.push_back(Connect());
    Send(lingering.back(), "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n");
    EXPECT_THAT(Read(lingering.back(), 15), "HTTP/1.1 200 OK");
  }
  const std::string answer = begin + Rest(slow);
  EXPECT_EQ(answer.size() - answer.find("\r\n\r\n") - 4, kLargeBytes);
  for (const int fd : lingering) close(fd);
}

TEST_F(HttpServerTest, AStreamComesInChunksOrUntilTheConnectionEnds) {
  EXPECT_THAT(Ask("POST /drip HTTP/1.1\r\nHost: a\r\n\r\n"),
              EndsWith("\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n"));
  EXPECT_THAT(Ask("POST /drip HTTP/1.0\r\n\r\n"), EndsWith("\r\n\r\nabc"));
}

TEST_F(HttpServerTest, AStreamSeesThatItsClientHasGone) {
  const int fd = Connect();
  Send(fd, "POST /pour HTTP/1.1\r\nHost: a\r\n\r\n");
  char buffer[4096];
  std::string answer;
  while (answer.find("first") == std::string::npos) {
    const ssize_t count = recv(fd, buffer, sizeof(buffer), 0);
    ASSERT_GT(count, 0);
    answer.append(buffer, count);
  }
  EXPECT_FALSE(poured_.HasBeenNotified());
  close(fd);
  EXPECT_TRUE(poured_.WaitForNotificationWithTimeout(absl::Seconds(20)));
}

TEST(QueryNumberTest, ReadsANumberOfTheQuery) {
  const HttpRequest request{.query = "limit=10&since=&big=18446744073709551615&limit=11&x"};
  EXPECT_EQ(*QueryNumber(request, "limit", 5), 10u) << "the first one counts";
  EXPECT_EQ(*QueryNumber(request, "big", 5), 18446744073709551615u);
  EXPECT_EQ(*QueryNumber(request, "lim", 5), 5u);
  EXPECT_EQ(*QueryNumber({}, "limit", 5), 5u);
  for (const char* query : {"n=", "n", "n=-1", "n=1.5", "n=18446744073709551616", "n=%31"}) {
    EXPECT_FALSE(QueryNumber({.query = query}, "n", 5).ok()) << query;
  }
}

TEST_F(HttpServerTest, AWebsocketsHandshakeGetsAnAnswerInHttp) {
  const std::string handshake =
      "Host: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
  EXPECT_THAT(Ask("GET /other HTTP/1.1\r\n" + handshake), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Ask("GET /livez HTTP/1.1\r\n" + handshake), StartsWith("HTTP/1.1 200 "));
}

// Opens connections that send incomplete requests. Checks whether a complete request is answered
// before the server closes the first of them.
class UnfinishedRequestsTest : public HttpServerTest {
 protected:
  bool IsAnsweredMeanwhile() {
    std::vector<int> unfinished;
    for (int i = 0; i < 200; ++i) {
      unfinished.push_back(Connect());
      Send(unfinished.back(), "GET /l");
    }
    EXPECT_THAT(Ask("GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
    char byte;
    const bool given_up = recv(unfinished.front(), &byte, 1, MSG_DONTWAIT) >= 0;
    for (const int fd : unfinished) close(fd);
    return !given_up;
  }
};

TEST_F(UnfinishedRequestsTest, DoNotKeepOthersFromTheirAnswer) {
  bool answered = false;
  // On a busy machine the server's time limit can pass while this test does not run.
  for (int attempt = 0; attempt < 10 && !answered; ++attempt) answered = IsAnsweredMeanwhile();
  EXPECT_TRUE(answered);
}

TEST(ReadingPaceTest, AReaderHasPatienceAndTimeForWhatItHasTaken) {
  ReadingPace pace;
  pace.Add(0, ReadingPace::kPatience);
  EXPECT_FALSE(pace.too_slow());
  pace.Add(0, absl::Milliseconds(1));
  EXPECT_TRUE(pace.too_slow());
  pace.Add(ReadingPace::kBytesPerSecond, absl::Milliseconds(998));
  EXPECT_FALSE(pace.too_slow()) << "a second for each kBytesPerSecond";
}

// Half of the required rate, in small pieces: given up after twenty seconds of waiting.
TEST(ReadingPaceTest, AByteNowAndThenIsNotEnough) {
  ReadingPace pace;
  absl::Duration waited;
  while (!pace.too_slow()) {
    pace.Add(16 << 10, absl::Milliseconds(250));
    waited += absl::Milliseconds(250);
    ASSERT_LT(waited, absl::Minutes(1));
  }
  EXPECT_GT(waited, ReadingPace::kPatience);
  EXPECT_LE(waited, absl::Seconds(21));
}

}  // namespace
}  // namespace pagoda::server

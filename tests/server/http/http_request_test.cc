#include "server/http/http_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace pagoda::server {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<HttpHead> HeadWith(const std::string& headers,
                                  const std::string& line = "GET / HTTP/1.1") {
  return ParseHead(line + "\r\n" + headers + "\r\n");
}

TEST(ParseHeadTest, ReadsTheLineAndTheHeaders) {
  const HttpHead head = *HeadWith(
      "HOST: h:7\r\nContent-Length:5 \r\nauthorization:  Bearer t\r\nX-Own: a: b\r\n"
      "Expect: 100-continue\r\nX-Forwarded-For: c\r\nOrigin: http://h\r\n",
      "POST /v1/a%2Fb%20c?x=%20&y HTTP/1.1");
  EXPECT_EQ(head.method, "POST");
  EXPECT_EQ(head.path, "/v1/a/b c");
  EXPECT_EQ(head.request.query, "x=%20&y");
  EXPECT_EQ(head.request.host, "h:7");
  EXPECT_EQ(head.request.authorization, "Bearer t");
  EXPECT_EQ(head.request.origin, "http://h");
  EXPECT_EQ(head.request.proxy_header, "X-Forwarded-For");
  EXPECT_EQ(head.content_length, 5u);
  EXPECT_TRUE(head.expects_continue);
  EXPECT_FALSE(head.is_chunked || head.is_http_1_0);
  EXPECT_TRUE(HeadWith("", "GET / HTTP/1.0")->is_http_1_0);
  EXPECT_TRUE(HeadWith("Transfer-Encoding: Chunked\r\n")->is_chunked);
  // A list may come in several headers.
  EXPECT_EQ(
      HeadWith("Accept-Encoding: br\r\naccept-encoding: gzip;q=0\r\n")->request.accept_encoding,
      " br, gzip;q=0");
}

// A client sent it behind the body of the request before.
TEST(ParseHeadTest, OneEmptyLineBeforeTheRequestIsSkipped) {
  EXPECT_EQ(HeadWith("Host: h\r\n", "\r\nGET /x HTTP/1.1")->path, "/x");
  EXPECT_FALSE(HeadWith("Host: h\r\n", "\r\n\r\nGET /x HTTP/1.1").ok());
  EXPECT_FALSE(HeadWith("Host: h\r\n", "\nGET /x HTTP/1.1").ok());
}

// A page cannot hide its host behind a Host header of this machine.
TEST(ParseHeadTest, TheHostBeforeThePathCounts) {
  const HttpHead head = *HeadWith("Host: localhost\r\n", "GET http://evil.example:80/x HTTP/1.1");
  EXPECT_EQ(head.request.host, "evil.example:80");
  EXPECT_EQ(head.path, "/x");
  EXPECT_EQ(HeadWith("", "GET http://h HTTP/1.1")->path, "/");
}

TEST(ParseHeadTest, RefusesWhatTwoServersCouldReadDifferently) {
  for (const char* headers :
       {"Content-Length: 5\r\nContent-Length: 5\r\n", "Host: a\r\nhost: b\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "Content-Length: -1\r\n",
        "Content-Length: +1\r\n", "Content-Length: 1,1\r\n", "Content-Length:\r\n",
        "Content-Length: 99999999999999999999\r\n", "Host : a\r\n", " folded\r\n",
        "Host: a\r\n b\r\n", "no colon\r\n", ": empty\r\n", "A: b\nHost: c\r\n",
        "A: b\rHost: c\r\n"}) {
    EXPECT_FALSE(HeadWith(headers).ok()) << headers;
  }
  EXPECT_FALSE(HeadWith(std::string("A: b\0c\r\n", 8)).ok());
  for (const char* line :
       {"GET /", "GET  / HTTP/1.1", "GET / HTTP/2.0", "GET / HTTP/1.1 ", "", "G(T / HTTP/1.1",
        "GET /% HTTP/1.1", "GET /%g0 HTTP/1.1", " / HTTP/1.1"}) {
    EXPECT_FALSE(HeadWith("", line).ok()) << line;
  }
  EXPECT_THAT(std::string(HeadWith("Host: a\r\nHost: b\r\n").status().message()),
              HasSubstr("Host"));
}

// However the bytes are cut.
TEST(BodyReaderTest, DecodesChunksInPieces) {
  const std::string wire = "3;x=y\r\nabc\r\n0a \r\n0123456789\r\n0\r\nA: b\r\n\r\nGET /";
  for (size_t size = 1; size <= wire.size(); ++size) {
    BodyReader reader(*HeadWith("Transfer-Encoding: chunked\r\n"));
    std::string body;
    for (size_t i = 0; i < wire.size(); i += size) {
      ASSERT_TRUE(reader.Take(wire.substr(i, size), &body)) << size;
    }
    EXPECT_TRUE(reader.done());
    EXPECT_EQ(body, "abc0123456789");
  }
}

TEST(BodyReaderTest, TakesAsManyBytesAsTheHeadSays) {
  BodyReader reader(*HeadWith("Content-Length: 3\r\n"));
  std::string body;
  EXPECT_TRUE(reader.Take("ab", &body));
  EXPECT_FALSE(reader.done());
  EXPECT_TRUE(reader.Take("cd", &body));
  EXPECT_TRUE(reader.done());
  EXPECT_EQ(body, "abc");
  EXPECT_TRUE(BodyReader(*HeadWith("")).done()) << "no body";
}

TEST(BodyReaderTest, LinesOfChunksAreBounded) {
  for (const std::string& start : {std::string("1;"), std::string("0\r\n")}) {
    BodyReader reader(*HeadWith("Transfer-Encoding: chunked\r\n"));
    std::string body;
    EXPECT_FALSE(reader.Take(start + std::string(2 * kMaxHeadBytes, 'a'), &body));
  }
}

}  // namespace
}  // namespace pagoda::server

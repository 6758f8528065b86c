#include "server/http/gzip.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace pagoda::server {
namespace {

std::string Unpacked(std::string packed) {
  z_stream stream = {};
  EXPECT_EQ(inflateInit2(&stream, 15 + 16), Z_OK);
  std::string text(1 << 20, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  text.resize(stream.total_out);
  inflateEnd(&stream);
  return text;
}

std::string HeaderOf(const HttpResponse& response, const std::string& header) {
  for (const auto& [name, value] : response.headers) {
    if (name == header) return value;
  }
  return "";
}

TEST(GzipTest, AWeightAboveZeroAcceptsIt) {
  for (const char* header :
       {"gzip", "GZip", "x-gzip", "deflate, gzip;q=0.001", "gzip ; q=1.000", "*", "*;q=0.1",
        "br;q=0,*", "identity;q=0.5, gzip;q=0.5", "identity;q=0, gzip;q=0.1", "gzip,deflate,br"}) {
    EXPECT_TRUE(AcceptsGzip(header)) << header;
  }
  for (const char* header :
       {"", "identity", "br", "gzip;q=0", "gzip;q=0.000", "*;q=0", "gzip;q=0,*", "gzip;q=-1",
        "gzip;q=2", "gzip;q=nan", "gzip;q=", "gzip;level=1", "gzipped", "deflate;gzip",
        "identity, gzip;q=0.5", ",,;;,"}) {
    EXPECT_FALSE(AcceptsGzip(header)) << header;
  }
}

TEST(GzipTest, TheTextIsTheSame) {
  std::string text;
  for (int i = 0; i < 2000; ++i) absl::StrAppend(&text, "pagoda_blocks{tier=\"", i, "\"} 7\n");
  HttpRequest request;
  const HttpResponse plain = Compressed(request, {.body = text});
  EXPECT_EQ(plain.body, text);
  EXPECT_EQ(HeaderOf(plain, "Vary"), "Accept-Encoding");
  EXPECT_EQ(HeaderOf(plain, "Content-Encoding"), "");

  request.accept_encoding = "gzip";
  const HttpResponse packed = Compressed(request, {.body = text});
  EXPECT_LT(packed.body.size() * 4, text.size());
  EXPECT_EQ(Unpacked(packed.body), text);
  EXPECT_EQ(HeaderOf(packed, "Vary"), "Accept-Encoding");
  EXPECT_EQ(HeaderOf(packed, "Content-Encoding"), "gzip");
}

// Bytes that do not compress fit as well.
TEST(GzipTest, RandomBytesFitTheBound) {
  std::string noise;
  uint32_t state = 1;
  for (int i = 0; i < 100'000; ++i) {
    state = state * 1664525u + 1013904223u;
    noise += static_cast<char>(state >> 24);
  }
  HttpRequest request;
  request.accept_encoding = "gzip";
  EXPECT_EQ(Unpacked(Compressed(request, {.body = noise}).body), noise);
}

}  // namespace
}  // namespace pagoda::server

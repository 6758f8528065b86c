#include "server/log/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace pagoda::server {
namespace {

using ::testing::EndsWith;

TEST(LogTest, AMessageIsOneLineThatATerminalShowsAndDoesNotObey) {
  struct Case {
    std::string_view message, logged;
  };
  for (const Case& c : {
           Case{"te: x\r2026 error forged", "te: x\\r2026 error forged"},
           Case{"two\nlines", "two lines"},
           Case{"\x1b[2J\x1b]0;title\x07", "\\u001b[2J\\u001b]0;title\\u0007"},
           Case{"client \u202eevil\u2069", "client \\u202eevil\\u2069"},
           Case{"store: \x9b\xff", "store: \\x9b\\xff"},
           Case{"Größe 日本", "Größe 日本"},
       }) {
    ::testing::internal::CaptureStderr();
    Log(LogLevel::kError, c.message);
    const std::string line = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(line, EndsWith(" error " + std::string(c.logged) + "\n"));
    EXPECT_EQ(line.find('\n'), line.size() - 1);
  }
}

}  // namespace
}  // namespace pagoda::server

#include "base/address_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace pagoda {
namespace {

using ::testing::HasSubstr;

TEST(AddressFormTest, HostAndPortAreNoMistake) {
  for (const char* text :
       {"127.0.0.1:7070", "[::1]:7070", "host.example:1", "localhost:0", "[fe80::1%eth0]:65535"}) {
    EXPECT_EQ(AddressMistake(text), "") << text;
  }
}

TEST(AddressFormTest, EachMistakeIsNamed) {
  for (const auto& [text, mistake] :
       {std::pair("", "it is empty"), std::pair("http://127.0.0.1:7071", "begins with http://"),
        std::pair("redis://a", "begins with redis://"),
        std::pair("/run/pagodad.sock", "it is a path"), std::pair("./pagodad.sock", "it is a path"),
        std::pair("unix:/run/pagodad.sock", "it is a path"),
        std::pair("localhost", "it has no port, as in localhost:7070"),
        std::pair("[::1]", "it has no port, as in [::1]:7070"),
        std::pair(":7070", "it has no host"),
        std::pair("::1:7070", "an IPv6 address needs brackets"),
        std::pair("::1", "an IPv6 address needs brackets"),
        std::pair("[::1", "an IPv6 address needs brackets"),
        std::pair("[a:1", "its brackets do not enclose the host"),
        std::pair("[::1]x:1", "its brackets do not enclose the host"),
        std::pair("a:", "its port '' is no number"),
        std::pair("a:65536", "its port '65536' is no number"),
        std::pair("a:-1", "its port '-1' is no number"),
        std::pair("a:1x", "its port '1x' is no number")}) {
    EXPECT_THAT(AddressMistake(text), HasSubstr(mistake)) << text;
  }
}

}  // namespace
}  // namespace pagoda

#include "engine/text/stop_strings.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace pagoda {
namespace {

TEST(StopStringsTest, EndsBeforeTheFirst) {
  StopStrings stops({"END", "\n\n"});
  EXPECT_EQ(stops.Add("one "), "one ");
  EXPECT_EQ(stops.Add("two E"), "two ");
  EXPECT_EQ(stops.Add("Nx"), "ENx");
  EXPECT_EQ(stops.Add("\n"), "");
  EXPECT_EQ(stops.Add("a\n\nEND"), "\na");
  EXPECT_TRUE(stops.stopped());
  EXPECT_EQ(stops.Add("more"), "");
  EXPECT_EQ(stops.Finish(), "");
}

TEST(StopStringsTest, GivesWhatItKeptWhereNothingFollows) {
  StopStrings stops({"stop"});
  EXPECT_EQ(stops.Add("sto"), "");
  EXPECT_EQ(stops.Finish(), "sto");
}

TEST(StopStringsTest, WithoutStopsNothingIsKept) {
  StopStrings stops({""});
  EXPECT_EQ(stops.Add("abc"), "abc");
  EXPECT_FALSE(stops.stopped());
}

TEST(StopStringsTest, IsTheTextUpToTheLeftmostStop) {
  std::mt19937 random(1);
  const auto draw = [&](size_t size) {
    std::string text;
    while (text.size() < size) text += static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int round = 0; round < 3000; ++round) {
    const std::vector<std::string> wanted = {draw(1 + random() % 4), draw(1 + random() % 6)};
    const std::string text = draw(random() % 40);
    StopStrings stops(wanted);
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const size_t size = 1 + random() % 5;
      out += stops.Add(absl::string_view(text).substr(at, size));
      at += size;
      if (stops.stopped()) break;
    }
    out += stops.Finish();
    const size_t first = std::min(text.find(wanted[0]), text.find(wanted[1]));
    // A piece is searched as a whole; the leftmost complete stop string wins.
    if (first == std::string::npos) {
      EXPECT_EQ(out, text);
    } else {
      ASSERT_TRUE(stops.stopped());
      EXPECT_TRUE(text.compare(0, out.size(), out) == 0);
      EXPECT_GE(out.size(), first);
      EXPECT_TRUE(text.compare(out.size(), wanted[0].size(), wanted[0]) == 0 ||
                  text.compare(out.size(), wanted[1].size(), wanted[1]) == 0);
    }
  }
}

}  // namespace
}  // namespace pagoda

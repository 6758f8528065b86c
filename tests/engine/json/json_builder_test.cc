#include "engine/json/json_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "engine/checkpoint/files/json_text.h"
#include "engine/text/encoding/bounded_json.h"

namespace pagoda {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using ::testing::HasSubstr;

constexpr size_t kDepth = 16;

json RandomJson(std::mt19937& random, int depth) {
  const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
  switch (below(depth < 6 ? 9 : 7)) {
    case 0:
      return nullptr;
    case 1:
      return below(2) == 0;
    case 2:
      return below(1000);
    case 3:
      return -below(1000);
    case 4:
      return below(1000) / 8.0;
    case 5:
      return std::string(static_cast<size_t>(below(40)), 'a');
    case 6:
      return "\u00e9\"\\\n";
    case 7: {
      json list = json::array();
      for (int i = below(6); i > 0; --i) list.push_back(RandomJson(random, depth + 1));
      return list;
    }
  }
  json object = json::object();
  for (int i = below(6); i > 0; --i) {
    object[std::string(1, static_cast<char>('a' + below(26)))] = RandomJson(random, depth + 1);
  }
  return object;
}

TEST(JsonBuilderTest, BuildsWhatTheLibraryBuilds) {
  std::mt19937 random(7);
  JsonBuilder<json> builder(kDepth);
  JsonBuilder<ordered_json> ordered(kDepth);
  for (int i = 0; i < 2000; ++i) {
    std::string text = RandomJson(random, 0).dump();
    if (i % 4 == 0) text = text.substr(0, random() % (text.size() + 1));  // Mostly not valid.
    const json expected = json::parse(text, nullptr, /*allow_exceptions=*/false);
    const json read = *builder.Read(text);
    ASSERT_EQ(read.is_discarded(), expected.is_discarded()) << text;
    const ordered_json read_in_order = *ordered.Read(text);
    if (expected.is_discarded()) {
      EXPECT_TRUE(read_in_order.is_discarded());
      continue;
    }
    EXPECT_EQ(read, expected);
    EXPECT_EQ(read_in_order.dump(), ordered_json::parse(text).dump());
  }
  EXPECT_EQ(*builder.Read(R"({"a":1,"a":[2]})"), json({{"a", {2}}})) << "the last one counts";
  EXPECT_TRUE(builder.Read("1 2")->is_discarded());
  EXPECT_TRUE(builder.Read("\"\xff\"")->is_discarded());
}

TEST(JsonBuilderTest, EndsAtAValueThatIsTooDeep) {
  JsonBuilder<json> builder(kDepth);
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(builder.Read(nested(kDepth)).ok());
  EXPECT_THAT(std::string(builder.Read(nested(kDepth + 1)).status().message()),
              HasSubstr("more than 16 levels"));
  EXPECT_FALSE(builder.Read(std::string(100'000, '[')).ok());
  EXPECT_FALSE(builder.Read(std::string(kDepth, '[') + "1").ok());
}

class GrowingBuilder final : public JsonBuilder<json> {
 public:
  explicit GrowingBuilder(size_t most) : JsonBuilder(kDepth), most_(most) {}
  size_t bytes() const { return bytes_; }

 private:
  absl::Status OnGrowth(size_t bytes) override {
    bytes_ += bytes;
    return bytes_ <= most_ ? absl::OkStatus() : absl::ResourceExhaustedError("too much");
  }

  const size_t most_;
  size_t bytes_ = 0;
};

TEST(JsonBuilderTest, ValuesAreCountedBeforeTheyTakeMemory) {
  std::string objects = "[{}";
  for (int i = 0; i < 100'000; ++i) objects += ",{}";
  objects += "]";
  GrowingBuilder whole(size_t{1} << 30);
  EXPECT_TRUE(whole.Read(objects).ok());
  EXPECT_GT(whole.bytes(), 100'000 * (sizeof(json) + sizeof(json::object_t)));
  GrowingBuilder bounded(size_t{1} << 20);
  EXPECT_EQ(bounded.Read(objects).status().message(), "too much");
  EXPECT_LT(bounded.bytes(), size_t{1} << 21) << "the first refusal ends the parsing";
}

double CpuSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The library's parser with a callback takes a hundred times as long for ten times the objects.
TEST(JsonBuilderTest, TheCostIsLinear) {
  const auto cost = [](auto parse, int objects) {
    std::string text = R"({"a":[{})";
    for (int i = 0; i < objects; ++i) text += ",{}";
    text += "]}";
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
      const double start = CpuSeconds();
      EXPECT_TRUE(parse(text).ok());
      best = std::min(best, CpuSeconds() - start);
    }
    return best;
  };
  const auto text_of_a_model = [](const std::string& text) { return ParseBoundedJson(text, 16); };
  const auto checkpoint = [](const std::string& text) {
    return ParseJsonObject(text, "path", "the file");
  };
  EXPECT_LT(cost(text_of_a_model, 100'000), 40 * cost(text_of_a_model, 10'000));
  EXPECT_LT(cost(checkpoint, 100'000), 40 * cost(checkpoint, 10'000));
}

}  // namespace
}  // namespace pagoda

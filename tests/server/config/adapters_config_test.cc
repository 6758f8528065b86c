// engine.adapters: what is read, printed and refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "server/config/config.h"

namespace pagoda::server {
namespace {

using ::testing::HasSubstr;

std::string Refusal(const std::string& engine) {
  const auto config = ParseConfig(absl::StrCat("engine: {", engine, "}"), "test.yaml");
  return config.ok() ? "accepted" : std::string(config.status().message());
}

TEST(AdaptersConfigTest, AListOfNamesAndFoldersIsReadAndPrinted) {
  const auto config = ParseConfig(
      "engine:\n  model_dir: x\n  adapters:\n    - {name: a, path: /a}\n    - {name: b, path: /b}",
      "test.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  const auto again = ParseConfig(PrintConfig(*config), "printed.yaml");
  ASSERT_TRUE(again.ok()) << again.status();
  for (const Config& read : {*config, *again}) {
    ASSERT_EQ(read.engine.adapters.size(), 2u);
    EXPECT_EQ(read.engine.adapters[0].name, "a");
    EXPECT_EQ(read.engine.adapters[1].path, "/b");
  }
  EXPECT_EQ(Refusal("model_dir: x, adapters: {name: a, path: b}"), "accepted");
  EXPECT_EQ(Refusal("model_dir: x, adapters: []"), "accepted");
}

TEST(AdaptersConfigTest, NamesAreDistinctAndNotTheModels) {
  const auto adapters = [](const std::string& list) {
    return Refusal(absl::StrCat("model_dir: some/model, adapters: [", list, "]"));
  };
  EXPECT_THAT(adapters("{name: a, path: x}, {name: a, path: y}"), HasSubstr("two adapters 'a'"));
  EXPECT_THAT(adapters("{name: model, path: x}"), HasSubstr("the model's own name"));
  EXPECT_THAT(adapters("{path: x}"), HasSubstr("engine.adapters"));
  EXPECT_THAT(adapters("{name: a}"), HasSubstr("adapter 'a' has no path"));
  EXPECT_THAT(adapters("{name: a, path: x, rank: 4}"), HasSubstr("rank"));
  EXPECT_THAT(Refusal("adapters: [{name: a, path: x}]"), HasSubstr("needs engine.model_dir"));
}

}  // namespace
}  // namespace pagoda::server

// The keys of a tier on disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "server/config/config.h"

namespace pagoda::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The message with which a text is refused; "accepted" if it is valid.
std::string Refusal(const std::string& text) {
  const absl::StatusOr<Config> config = ParseConfig(text, "pagodad.yaml");
  if (config.ok()) return "accepted";
  EXPECT_EQ(ReasonOf(config.status()), Reason::kInvalidArgument);
  return std::string(config.status().message());
}

// A cache whose last tier is on disk, with more keys for that tier.
std::string WithDisk(const std::string& keys, const std::string& more = "model: {name: x}") {
  return absl::StrCat(
      "cache: {tiers: [{name: dram, size: 9}, {name: nvme, medium: disk, size: 99, ", keys, "}], ",
      more, "}");
}

TEST(DiskConfigTest, ADiskHasKeysOfItsOwn) {
  const auto plain = ParseConfig(WithDisk("path: /d"), "f");
  ASSERT_TRUE(plain.ok()) << plain.status();
  const Config::Cache::TierConfig& by_default = plain->cache.tiers[1];
  EXPECT_EQ(by_default.path, "/d");
  EXPECT_EQ(by_default.write_bytes_per_second, 0u);
  EXPECT_EQ(by_default.on_foreign, SlabFile::OnForeign::kRefuse);
  EXPECT_EQ(by_default.io, EngineKind::kAuto);
  EXPECT_TRUE(by_default.direct);
  EXPECT_TRUE(plain->cache.has_disk());
  EXPECT_FALSE(Config().cache.has_disk());

  const auto all = ParseConfig(WithDisk("path: /d, write_bytes_per_second: 44MB, on_foreign: "
                                        "replace, io: threads, direct: false"),
                               "f");
  ASSERT_TRUE(all.ok()) << all.status();
  const Config::Cache::TierConfig& tier = all->cache.tiers[1];
  EXPECT_EQ(tier.write_bytes_per_second, 44'000'000u);
  EXPECT_EQ(tier.on_foreign, SlabFile::OnForeign::kReplace);
  EXPECT_EQ(tier.io, EngineKind::kThreads);
  EXPECT_FALSE(tier.direct);
  const std::string printed = PrintConfig(*all);
  EXPECT_THAT(printed,
              AllOf(HasSubstr("write_bytes_per_second: 44MB"), HasSubstr("on_foreign: replace"),
                    HasSubstr("io: threads"), HasSubstr("direct: false")));
  const std::string cache = printed.substr(0, printed.find("\nmemory:"));
  EXPECT_EQ(cache.find("path:"), cache.rfind("path:")) << "of the disk alone\n" << printed;
  const auto read = ParseConfig(printed, "printed");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(PrintConfig(*read), printed);
}

TEST(DiskConfigTest, AWriteBudgetHasDecimalOrBinaryUnits) {
  const auto budget = [](const std::string& text) {
    const auto config = ParseConfig(WithDisk("path: /d, write_bytes_per_second: " + text), "f");
    EXPECT_TRUE(config.ok()) << config.status();
    return config.ok() ? config->cache.tiers[1].write_bytes_per_second : 1;
  };
  EXPECT_EQ(budget("0"), 0u);
  EXPECT_EQ(budget("0MB"), 0u);
  EXPECT_EQ(budget("1234567"), 1'234'567u);
  EXPECT_EQ(budget("7B"), 7u);
  EXPECT_EQ(budget("3KB"), 3'000u);
  EXPECT_EQ(budget("3KiB"), 3u << 10);
  EXPECT_EQ(budget("2GB"), 2'000'000'000u);
  EXPECT_EQ(budget("1TiB"), uint64_t{1} << 40);
  EXPECT_EQ(budget("1.5 MB"), 1'500'000u);
  for (const char* bad : {"fast", "-1", "1.5", "44MB/s", "[1]", "99999999999TiB"}) {
    EXPECT_THAT(Refusal(WithDisk(absl::StrCat("path: /d, write_bytes_per_second: ", bad))),
                HasSubstr("bytes such as 8GiB"))
        << bad;
  }
  const auto printed = [](uint64_t bytes) {
    Config config = *ParseConfig(WithDisk("path: /d"), "f");
    config.cache.tiers[1].write_bytes_per_second = bytes;
    return PrintConfig(config);
  };
  EXPECT_THAT(printed(0), HasSubstr("write_bytes_per_second: 0\n"));
  EXPECT_THAT(printed(42u << 20), HasSubstr("write_bytes_per_second: 42MiB\n"));
  EXPECT_THAT(printed(1001), HasSubstr("write_bytes_per_second: 1001\n"));
}

TEST(DiskConfigTest, ADiskThatCannotBeServedIsRefused) {
  EXPECT_THAT(Refusal(WithDisk("min_priority: 1")), HasSubstr("'nvme' is on disk and has no path"));
  EXPECT_THAT(Refusal(WithDisk("path: \"\"")), HasSubstr("has no path"));
  EXPECT_THAT(Refusal(WithDisk("path: /d, on_foreign: keep")), HasSubstr("refuse, replace"));
  EXPECT_THAT(Refusal(WithDisk("path: /d, io: aio")), HasSubstr("auto, io_uring, threads"));
  EXPECT_THAT(Refusal(WithDisk("path: /d, direct: 1")), HasSubstr("true or false"));
  EXPECT_THAT(Refusal(WithDisk("path: /d", "tokens_per_block: 1024, model: {name: x}")),
              HasSubstr("at most 512 tokens"));
  const auto of_list = [](const std::string& list) {
    return Refusal("cache: {model: {name: x}, tiers: [" + list + "]}");
  };
  EXPECT_THAT(of_list("{size: 9}, {medium: disk, path: /d}"), HasSubstr("has no size"));
  EXPECT_THAT(of_list("{size: 9}, {medium: disk, path: /d, size: [0, 0]}"),
              HasSubstr("has no size"));
  EXPECT_THAT(of_list("{size: 9}, {medium: disk, path: /d, size: 9}, {size: 9}"),
              HasSubstr("'secondary' is on disk and not the last"));
  EXPECT_THAT(of_list("{size: 9}, {medium: disk, path: /d, size: 9}, "
                      "{medium: disk, path: /e, size: 9}"),
              HasSubstr("only the last tier can be"));
  EXPECT_THAT(of_list("{medium: gpu, size: 9}, {medium: disk, path: /d, size: 9}"),
              HasSubstr("right below a tier in GPU memory"));
  EXPECT_EQ(of_list("{medium: gpu, size: 9}, {size: 9}, {medium: disk, path: /d, size: 9}"),
            "accepted");
}

TEST(DiskConfigTest, KeysOfADiskAreRefusedElsewhere) {
  for (const char* key : {"path: /d", "path: \"\"", "write_bytes_per_second: 0",
                          "on_foreign: refuse", "io: auto", "direct: true"}) {
    const std::string name = std::string(key).substr(0, std::string(key).find(':'));
    EXPECT_THAT(
        Refusal(absl::StrCat("cache:\n  tiers:\n  - size: 9\n  - size: 9\n    ", key, "\n")),
        AllOf(StartsWith("pagodad.yaml:5: "), HasSubstr(name),
              HasSubstr("for tiers with medium: disk")))
        << key;
    EXPECT_THAT(Refusal(absl::StrCat("cache: {tiers: {size: 9, medium: host, ", key, "}}")),
                HasSubstr("for tiers with medium: disk"))
        << key;
  }
}

TEST(DiskConfigTest, ADiskKeepsKvSoItIsKnownOfWhichModel) {
  EXPECT_THAT(Refusal(WithDisk("path: /d", "name: c")),
              AllOf(HasSubstr("a tier on disk keeps KV"), HasSubstr("cache.model.name")));
  EXPECT_EQ(Refusal(WithDisk("path: /d", "model_dir: x")), "accepted");
  EXPECT_EQ(Refusal(WithDisk("path: /d", "name: c") + "\nengine: {model_dir: x}"), "accepted");
}

TEST(DiskConfigTest, ADisksFolderIsRelativeToTheFile) {
  const std::string file = ::testing::TempDir() + "/disk_folder.yaml";
  std::ofstream(file) << WithDisk("path: slabs/tier");
  const absl::StatusOr<Config> config = LoadConfig(file);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->cache.tiers[1].path, AllOf(StartsWith("/"), EndsWith("/slabs/tier")));
  EXPECT_EQ(config->cache.tiers[0].path, "");
  std::remove(file.c_str());
}

// The deploy example's list of tiers, which is not a default: it is accepted as printed, and every
// key of a disk is explained.
TEST(DiskConfigTest, TheDeployExampleShowsAListOfTiers) {
  std::ifstream in(DEPLOY_CONFIG);
  ASSERT_TRUE(in) << DEPLOY_CONFIG;
  const std::regex tier("^  #   (- \\{name: .*\\})$"), key("^  #   ([a-z_]+) {3,}[A-Z].*$");
  std::string text = "cache:\n  model: {name: x}\n  tiers:\n";
  std::vector<std::string> explained;
  std::smatch found;
  for (std::string line; std::getline(in, line);) {
    if (std::regex_match(line, found, tier)) text += "  " + found[1].str() + "\n";
    if (std::regex_match(line, found, key)) explained.push_back(found[1]);
  }
  const absl::StatusOr<Config> config = ParseConfig(text, "example");
  ASSERT_TRUE(config.ok()) << config.status() << "\n" << text;
  EXPECT_EQ(config->cache.tiers.size(), 3u);
  EXPECT_TRUE(config->cache.has_disk());
  EXPECT_THAT(explained,
              ElementsAre("path", "write_bytes_per_second", "on_foreign", "io", "direct"));
}

}  // namespace
}  // namespace pagoda::server

#include "server/cache/brought_caches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda::server {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class BroughtCachesTest : public ::testing::Test {
 protected:
  ~BroughtCachesTest() override { unlink(path_.c_str()); }

  static BroughtCache Brought(uint32_t number, const std::string& name) {
    return {.number = number,
            .tenant = "alice",
            .call = {.name = name,
                     .identity = {.model = "org/model", .revision = "r1", .dtype = "bfloat16"},
                     .tokens_per_block = 16,
                     .layers = {{.num_kv_heads = 8, .head_dim = 128},
                                {.window = WindowSize(64),
                                 .num_kv_heads = 1,
                                 .head_dim = 576,
                                 .dtype = DType::kBFloat16,
                                 .kind = KvKind::kKeyOnly}},
                     .tiers = {{.medium = Medium::kHost, .bytes = uint64_t{1} << 40},
                               {.medium = Medium::kDisk, .bytes = 5}},
                     .eviction_policy = "lru"}};
  }
  void WriteText(const std::string& text) { std::ofstream(path_) << text; }

  const std::string path_ = absl::StrCat(::testing::TempDir(), "/brought-", getpid());
  const BroughtCachesFile file_{path_};
};

TEST_F(BroughtCachesTest, WithoutAFileThereAreNone) {
  const absl::StatusOr<BroughtCaches> found = file_.Read();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->caches, IsEmpty());
}

TEST_F(BroughtCachesTest, WhatIsWrittenIsReadAgain) {
  const BroughtCaches caches{.next_number = 9, .caches = {Brought(4, "a"), Brought(7, "b")}};
  ASSERT_TRUE(file_.Write(caches).ok());
  ASSERT_TRUE(file_.Write(caches).ok()) << "anew";
  const absl::StatusOr<BroughtCaches> found = file_.Read();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->next_number, 9u);
  ASSERT_THAT(found->caches, SizeIs(2));
  const BroughtCache& second = found->caches[1];
  EXPECT_EQ(second.number, 7u);
  EXPECT_EQ(second.tenant, "alice");
  EXPECT_EQ(second.call.name, "b");
  EXPECT_EQ(second.call.identity, Brought(7, "b").call.identity);
  EXPECT_EQ(second.call.tokens_per_block, 16u);
  EXPECT_EQ(second.call.layers, Brought(7, "b").call.layers);
  EXPECT_EQ(second.call.tiers, Brought(7, "b").call.tiers);
  EXPECT_EQ(second.call.eviction_policy, "lru");
}

TEST_F(BroughtCachesTest, ADamagedFileIsRefused) {
  for (const char* text :
       {"", "{", "[]", "{\"next_number\": 1}", "{\"next_number\": \"x\", \"caches\": []}",
        "{\"next_number\": 1, \"caches\": [{\"number\": 1, \"tenant\": \"\", "
        "\"cache\": {\"name\": \"a\", \"what\": 3}}]}",
        "{\"next_number\": 1, \"caches\": [{\"number\": 1, \"tenant\": \"\", "
        "\"cache\": {\"name\": \"a\"}}]}"}) {
    WriteText(text);
    EXPECT_EQ(ReasonOf(file_.Read().status()), Reason::kInvalidArgument) << text;
  }
}

TEST_F(BroughtCachesTest, AFileThatOthersMayWriteIsNotBelieved) {
  ASSERT_TRUE(file_.Write({}).ok());
  ASSERT_TRUE(file_.Read().ok());
  ASSERT_EQ(chmod(path_.c_str(), 0660), 0);
  EXPECT_EQ(ReasonOf(file_.Read().status()), Reason::kPermissionDenied);
}

TEST_F(BroughtCachesTest, ALinkIsNotFollowed) {
  const std::string target = absl::StrCat(path_, ".target");
  ASSERT_TRUE(BroughtCachesFile(target).Write({}).ok());
  ASSERT_EQ(symlink(target.c_str(), path_.c_str()), 0);
  EXPECT_FALSE(file_.Read().ok());
  unlink(target.c_str());
}

}  // namespace
}  // namespace pagoda::server

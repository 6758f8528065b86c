// A sequence's KV to a file and back, with the tiny checkpoints.
#include "engine/kv_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/fixtures/test_cache.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;

class Served {
 public:
  explicit Served(const std::string& model, DType kv_dtype = DType::kFloat32,
                  std::function<absl::Status(const Order&)> before_copy = nullptr)
      : cache_(*Engine::CacheSpecForModel(GoldenDir(model), 16, kv_dtype),
               {.primary_blocks = 64, .lower_blocks = before_copy ? 64u : 0u}, before_copy),
        engine_(*Engine::Create({.model_dir = GoldenDir(model),
                                 .cpu = {.num_threads = 1, .compute = ComputeType::kFloat32}},
                                cache_.OpenClient())) {}

  struct Answer {
    std::vector<TokenId> ids;
    uint32_t reused_tokens = 0;
  };
  Answer Generate(std::vector<TokenId> prompt, uint32_t max_new_tokens) {
    Answer answer;
    const auto report =
        engine_->Generate({.prompt = std::move(prompt), .max_new_tokens = max_new_tokens},
                          [&](const GeneratedToken& token) {
                            answer.ids.push_back(token.token);
                            return true;
                          });
    EXPECT_TRUE(report.ok()) << report.status();
    answer.reused_tokens = report->reused_tokens;
    return answer;
  }

  Engine& engine() { return *engine_; }
  TestCache& cache() { return cache_; }

 private:
  TestCache cache_;
  std::unique_ptr<Engine> engine_;
};

std::string ScratchPath(const std::string& name) {
  return testing::TempDir() + "/" + std::to_string(getpid()) + "-" + name;
}

class KvFileTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, KvFileTest,
                         testing::Values(kTinyModel, "pagoda_qwen3_tiny", "deepseek_v3_tiny"));

TEST_P(KvFileTest, AnotherCacheGoesOnFromTheFile) {
  const std::string path = ScratchPath("kv.safetensors");
  const Golden golden = ReadGoldenCases({GetParam(), GetParam()})[2];
  KvFileReport saved;
  {
    Served served(GetParam());
    served.Generate(golden.prompt, 20);
    std::vector<TokenId> tokens = golden.prompt;
    tokens.insert(tokens.end(), golden.ids.begin(), golden.ids.end());
    const auto report = served.engine().SaveKv({}, tokens, path);
    ASSERT_TRUE(report.ok()) << report.status();
    saved = *report;
    EXPECT_TRUE(served.cache().NothingHeld());
  }
  // All tokens except the last of the answer, which has no KV.
  EXPECT_EQ(saved.tokens, golden.prompt.size() + 19);
  EXPECT_EQ(saved.bytes, std::filesystem::file_size(path));

  Served served(GetParam());
  const auto loaded = served.engine().LoadKv({}, path);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->tokens, saved.tokens);
  const Served::Answer answer = served.Generate(golden.prompt, 20);
  EXPECT_EQ(answer.ids, golden.ids);
  EXPECT_EQ(answer.reused_tokens, golden.prompt.size() - 1);
  EXPECT_TRUE(served.cache().NothingHeld());
  // Loads the file again while all of it is cached.
  EXPECT_TRUE(served.engine().LoadKv({}, path).ok());
  std::filesystem::remove(path);
}

// KV that a copy has lost is not saved as valid. The file has neither its bytes nor the tokens
// behind it.
TEST(KvFileLossTest, WhatDoesNotComeUpIsNotSaved) {
  const std::string path = ScratchPath("lost.safetensors");
  const Golden golden = ReadGoldenCases({kTinyModel, kTinyModel})[2];
  ASSERT_GT(golden.prompt.size(), 48u);
  // Copies run on two threads, in any order; their tickets are numbers in that of the blocks.
  std::atomic<uint64_t> last = 0;
  std::atomic<uint64_t> lost = 0;
  std::atomic<int> coming = 0;
  Served served(kTinyModel, DType::kFloat32, [&](const Order& order) {
    const uint64_t ticket = order.ticket.value();
    for (uint64_t seen = last; seen < ticket && !last.compare_exchange_weak(seen, ticket);) {
    }
    if (order.target.tier == kPrimaryTier) ++coming;
    return ticket == lost ? absl::DataLossError("planted") : absl::OkStatus();
  });
  const auto save = [&](uint64_t losing) {  // Counts the onboarded blocks from 1.
    served.Generate(golden.prompt, 1);
    const std::unique_ptr<CacheClient> other = served.cache().OpenClient();
    EXPECT_TRUE(RunOne<OffloadedPrefix>(*other, OffloadPrefix{.tokens = golden.prompt}).ok());
    served.cache().WaitForCopies();
    coming = 0;
    lost = last + losing;
    auto saved = served.engine().SaveKv({}, golden.prompt, path);
    lost = 0;
    EXPECT_GT(coming, 2);
    EXPECT_TRUE(served.cache().NothingHeld());
    return saved;
  };
  EXPECT_EQ(save(1).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(path));
  const auto saved = save(3);
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->tokens, 32u) << "two blocks of 16 came up";

  Served another(kTinyModel);
  ASSERT_TRUE(another.engine().LoadKv({}, path).ok());
  const Served::Answer answer = another.Generate(golden.prompt, 20);
  EXPECT_EQ(answer.ids, golden.ids);
  EXPECT_EQ(answer.reused_tokens, 32u);
  std::filesystem::remove(path);
}

// A file is loaded behind its cached prefix. If a part of that prefix is not onboarded, that part
// is loaded too.
TEST(KvFileLossTest, WhatDoesNotComeUpIsLoaded) {
  const std::string path = ScratchPath("loaded.safetensors");
  const Golden golden = ReadGoldenCases({kTinyModel, kTinyModel})[2];
  std::atomic<bool> fails = false;
  Served served(kTinyModel, DType::kFloat32, [&](const Order& order) {
    return fails && order.target.tier == kPrimaryTier ? absl::DataLossError("planted")
                                                      : absl::OkStatus();
  });
  served.Generate(golden.prompt, 1);
  ASSERT_TRUE(served.engine().SaveKv({}, golden.prompt, path).ok());
  while (!served.cache().NothingHeld()) absl::SleepFor(absl::Milliseconds(1));
  const std::unique_ptr<CacheClient> other = served.cache().OpenClient();
  ASSERT_TRUE(RunOne<OffloadedPrefix>(*other, OffloadPrefix{.tokens = golden.prompt}).ok());
  served.cache().WaitForCopies();
  fails = true;
  const auto loaded = served.engine().LoadKv({}, path);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  fails = false;
  EXPECT_EQ(served.Generate(golden.prompt, 20).ids, golden.ids);
  EXPECT_TRUE(served.cache().NothingHeld());
  std::filesystem::remove(path);
}

// Cached KV stays unchanged. The file's tokens begin in the middle of a block behind it.
TEST_P(KvFileTest, AFileGoesOnBehindWhatIsCached) {
  const std::string path = ScratchPath("behind.safetensors");
  const Golden golden = ReadGoldenCases({GetParam(), GetParam()})[2];
  {
    Served served(GetParam());
    served.Generate(golden.prompt, 1);
    ASSERT_TRUE(served.engine().SaveKv({}, golden.prompt, path).ok());
  }
  Served served(GetParam());
  served.Generate({golden.prompt.begin(), golden.prompt.begin() + 41}, 1);
  const auto loaded = served.engine().LoadKv({}, path);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const Served::Answer answer = served.Generate(golden.prompt, 20);
  EXPECT_EQ(answer.ids, golden.ids);
  EXPECT_EQ(answer.reused_tokens, golden.prompt.size() - 1);
  EXPECT_TRUE(served.cache().NothingHeld());
  std::filesystem::remove(path);
}

TEST(KvFileRefusalTest, WhatIsNotCachedIsNotSaved) {
  Served served(kTinyModel);
  const std::string path = ScratchPath("nothing.safetensors");
  EXPECT_EQ(served.engine().SaveKv({}, {1, 2, 3}, path).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(path));
  served.Generate({1, 2, 3}, 2);
  EXPECT_THAT(std::string(served.engine().SaveKv({}, {1, 2, 3}, "/nowhere/x").status().message()),
              HasSubstr("/nowhere/x"));
  EXPECT_TRUE(served.cache().NothingHeld());
}

TEST(KvFileRefusalTest, TheKvOfAnAdapterIsNeitherSavedNorLoaded) {
  Served served(kTinyModel);
  const std::string path = ScratchPath("adapter.safetensors");
  served.Generate({1, 2, 3}, 2);
  const auto saved = served.engine().SaveKv({.lora_id = 7}, {1, 2, 3}, path);
  EXPECT_EQ(ReasonOf(saved.status()), Reason::kInvalidArgument);
  EXPECT_THAT(std::string(saved.status().message()), HasSubstr("lora_id"));
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE(served.engine().SaveKv({}, {1, 2, 3}, path).ok());
  const auto loaded = served.engine().LoadKv({.lora_id = 7}, path);
  EXPECT_EQ(ReasonOf(loaded.status()), Reason::kInvalidArgument);
  EXPECT_TRUE(served.engine().LoadKv({}, path).ok());
  EXPECT_TRUE(served.cache().NothingHeld());
  std::filesystem::remove(path);
}

TEST(KvFileRefusalTest, AFileOfAnotherModelOrShapeIsRefused) {
  const std::string path = ScratchPath("other.safetensors");
  {
    Served served(kTinyModel);
    served.Generate({1, 2, 3, 4}, 2);
    ASSERT_TRUE(served.engine().SaveKv({}, {1, 2, 3, 4}, path).ok());
  }
  const auto refused = [&](Served& served, const std::string& what) {
    const absl::Status status = served.engine().LoadKv({}, path).status();
    EXPECT_EQ(ReasonOf(status), Reason::kInvalidCheckpoint) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
    EXPECT_TRUE(served.cache().NothingHeld());
  };
  Served other("qwen2_tiny");
  refused(other, "is for the model");
  Served half(kTinyModel, DType::kFloat16);
  refused(half, "layers.0.keys");
  // Nothing of a refused file is cached.
  EXPECT_EQ(half.Generate({1, 2, 3, 4}, 2).reused_tokens, 0u);
  Served same(kTinyModel);
  std::filesystem::copy_file(GoldenDir(kTinyModel) + "/model.safetensors", path,
                             std::filesystem::copy_options::overwrite_existing);
  refused(same, "not a KV file");
  std::ofstream(path, std::ios::trunc) << "short";
  refused(same, "safetensors");
  std::filesystem::remove(path);
}

std::string BytesOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class KvFileFloat8Test : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, KvFileFloat8Test,
                         testing::Values(DType::kFloat8E4M3, DType::kFloat8E5M2),
                         [](const auto& type) { return std::string(DTypeName(type.param)); });

// The file has the numbers, not the bytes and scales. From another cache, also one of bf16, the
// same file can be saved again.
TEST_P(KvFileFloat8Test, TheNumbersComeBackExactly) {
  const std::string path = ScratchPath("kv.safetensors");
  const std::string again = ScratchPath("again.safetensors");
  const std::vector<TokenId> prompt = ReadGoldenCases({kTinyModel, kTinyModel})[2].prompt;
  Served served(kTinyModel, GetParam());
  const Served::Answer answer = served.Generate(prompt, 20);
  std::vector<TokenId> tokens = prompt;
  tokens.insert(tokens.end(), answer.ids.begin(), answer.ids.end());
  const auto saved = served.engine().SaveKv({}, tokens, path);
  ASSERT_TRUE(saved.ok()) << saved.status();
  for (const DType dtype : {GetParam(), DType::kBFloat16}) {
    SCOPED_TRACE(std::string(DTypeName(dtype)));
    Served other(kTinyModel, dtype);
    const auto loaded = other.engine().LoadKv({}, path);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(loaded->tokens, saved->tokens);
    ASSERT_TRUE(other.engine().SaveKv({}, tokens, again).ok());
    EXPECT_EQ(BytesOf(again).size(), saved->bytes);
    EXPECT_TRUE(BytesOf(again) == BytesOf(path));
    if (dtype != GetParam()) continue;
    const Served::Answer same = other.Generate(prompt, 20);
    EXPECT_EQ(same.ids, answer.ids);
    EXPECT_EQ(same.reused_tokens, prompt.size() - 1);
    EXPECT_TRUE(other.cache().NothingHeld());
  }
  std::filesystem::remove(path);
  std::filesystem::remove(again);
}

// The first loaded tokens go into a block that has tokens, with scales of their own.
TEST_P(KvFileFloat8Test, AFileGoesOnInABlockWithScales) {
  const std::string path = ScratchPath("behind8.safetensors");
  const std::vector<TokenId> prompt = ReadGoldenCases({kTinyModel, kTinyModel})[2].prompt;
  Served served(kTinyModel, GetParam());
  const Served::Answer answer = served.Generate(prompt, 20);
  ASSERT_TRUE(served.engine().SaveKv({}, prompt, path).ok());
  Served other(kTinyModel, GetParam());
  other.Generate({prompt.begin(), prompt.begin() + 41}, 1);
  const auto loaded = other.engine().LoadKv({}, path);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const Served::Answer same = other.Generate(prompt, 20);
  EXPECT_EQ(same.ids, answer.ids);
  EXPECT_EQ(same.reused_tokens, prompt.size() - 1);
  std::filesystem::remove(path);
}

// A window of sixteen tokens, which a longer text has passed.
TEST(KvFileRefusalTest, WhatASlidingWindowHasPassedIsNotSaved) {
  const Golden golden = ReadGoldenCases({"gemma3_tiny", "gemma3_tiny"})[3];
  Served served("gemma3_tiny");
  served.Generate(golden.prompt, 4);
  const absl::Status status =
      served.engine().SaveKv({}, golden.prompt, ScratchPath("window")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_TRUE(served.cache().NothingHeld());
}

}  // namespace
}  // namespace pagoda

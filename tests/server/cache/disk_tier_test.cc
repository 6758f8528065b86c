// A daemon with a disk tier: opened, refused, and recovered after the daemon's end.
#include "server/cache/disk_tier.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "manager/shared_manager.h"
#include "server/daemon.h"
#include "server/directory/cache_directory.h"
#include "tests/server/test_daemon.h"
#include "tests/wait_until.h"

namespace pagoda::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr uint32_t kDiskBlocks = 64;

class DiskTierTest : public ::testing::Test {
 protected:
  DiskTierTest() : config_(TestConfig()) {
    folder_ = absl::StrCat(::testing::TempDir(), "/", config_.cache.name, "-disk");
    config_.cache.model = {.name = "org/tiny"};
    config_.cache.tiers = {{.name = "dram", .size = BlockBudget{{kTestBlocks}}},
                           {.name = "nvme",
                            .medium = Medium::kDisk,
                            .size = BlockBudget{{kDiskBlocks}},
                            .path = folder_}};
    SetLogLevel(LogLevel::kError);
  }
  ~DiskTierTest() override {
    Stop();
    std::filesystem::remove_all(folder_);
  }

  Config::Cache::TierConfig& disk() { return config_.cache.tiers.back(); }
  std::string file() const { return absl::StrCat(folder_, "/", config_.cache.name, "-wfull.slab"); }

  void Start() {
    auto daemon = Daemon::Start(config_);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
  }
  void Stop() { daemon_.reset(); }
  std::string Refusal() {
    auto daemon = Daemon::Start(config_);
    return daemon.ok() ? "started" : std::string(daemon.status().message());
  }

  SharedManager& manager() { return daemon_->manager(); }
  DiskTierStats Stats() { return manager().Read(&BlockManager::Stats).windows[0].disk; }
  // The result of one operation, in a new session.
  OperationResult Run(const Operation& operation) {
    const auto session = manager().OpenSession("test", absl::Minutes(1));
    EXPECT_TRUE(session.ok()) << session.status();
    absl::StatusOr<BatchResult> batch = manager().Execute(session->ref, {&operation, 1});
    EXPECT_TRUE(batch.ok() && batch->results[0].ok());
    EXPECT_TRUE(manager().CloseSession(session->ref).ok());
    return *std::move(batch->results[0]);
  }
  void Cache(const std::vector<TokenId>& tokens) {
    const auto session = manager().OpenSession("test", absl::Minutes(1));
    const std::vector<Operation> operations = {
        AddSequence{.sequence = SequenceId{1}, .tokens = tokens},
        CommitTokens{.sequence = SequenceId{1},
                     .computed_tokens = static_cast<uint32_t>(tokens.size())},
        FreeSequence{SequenceId{1}}};
    const auto batch = manager().Execute(session->ref, operations);
    ASSERT_TRUE(batch.ok());
    for (const auto& result : batch->results) EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(manager().CloseSession(session->ref).ok());
  }
  template <class Condition>
  static bool Eventually(Condition condition) {
    return WaitUntil(condition);
  }

  Config config_;
  std::string folder_;
  std::unique_ptr<Daemon> daemon_;
};

TEST_F(DiskTierTest, TheFolderAndTheFileAreTheOwnersAlone) {
  disk().path = folder_ + "/made/too";
  Start();
  struct stat info;
  ASSERT_EQ(stat(disk().path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  const std::string path = absl::StrCat(disk().path, "/", config_.cache.name, "-wfull.slab");
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const CacheInfo& cache = manager().info();
  EXPECT_EQ(cache.tiers[1].medium, Medium::kDisk);
  EXPECT_THAT(cache.windows[0].blocks, ElementsAre(kTestBlocks, kDiskBlocks));
}

TEST_F(DiskTierTest, BlocksComeBackAfterADrain) {
  Start();
  const std::vector<TokenId> prompt = TokensTo(12);
  Cache(prompt);
  ASSERT_TRUE(Eventually([&] { return Stats().backups == 3; }));
  Stop();
  Start();
  EXPECT_EQ(manager().Read(&BlockManager::Stats).recovered_blocks, 3u);
  const auto matched = std::get<MatchedPrefix>(Run(MatchPrefix{.tokens = TokensTo(13)}));
  EXPECT_EQ(matched.matched_tokens, 0u) << "no sequence matches what is on disk alone";
  EXPECT_EQ(matched.cached_tokens, 12u);
  EXPECT_THAT(matched.tokens_by_tier, ElementsAre(0, 12));
  const auto fetched = std::get<PrefetchedPrefix>(Run(PrefetchPrefix{.tokens = prompt}));
  EXPECT_EQ(fetched.fetched_blocks, 3u);
  ASSERT_TRUE(Eventually([&] { return Stats().fetches == 3; }));
  EXPECT_EQ(std::get<MatchedPrefix>(Run(MatchPrefix{.tokens = TokensTo(13)})).matched_tokens, 12u);
  manager().Read(&BlockManager::CheckInvariants);
}

TEST_F(DiskTierTest, AFileOfAnotherModelIsRefusedUntilItMayBeReplaced) {
  Start();
  Cache(TokensTo(12));
  ASSERT_TRUE(Eventually([&] { return Stats().backups == 3; }));
  Stop();
  config_.cache.model.revision = "2";
  EXPECT_THAT(Refusal(),
              AllOf(HasSubstr("tier 'nvme'"), HasSubstr(file()), HasSubstr("on_foreign: replace"),
                    EndsWith("drops the file's content")));
  disk().on_foreign = SlabFile::OnForeign::kReplace;
  Start();
  EXPECT_EQ(manager().Read(&BlockManager::Stats).recovered_blocks, 0u);
  EXPECT_EQ(std::get<MatchedPrefix>(Run(MatchPrefix{.tokens = TokensTo(12)})).cached_tokens, 0u);
}

TEST_F(DiskTierTest, AnotherSizeIsAnotherFile) {
  Start();
  Stop();
  disk().size = BlockBudget{{kDiskBlocks + 1}};
  EXPECT_THAT(Refusal(), HasSubstr("on_foreign: replace"));
}

TEST_F(DiskTierTest, AFolderThatCannotBeUsedIsNamed) {
  std::ofstream(folder_) << "no folder";
  EXPECT_THAT(Refusal(),
              AllOf(HasSubstr("tier 'nvme'"), HasSubstr(folder_), HasSubstr("is a file")));
  disk().path = folder_ + "/below";
  EXPECT_THAT(Refusal(), AllOf(HasSubstr(disk().path), HasSubstr("cannot be made")));
}

TEST_F(DiskTierTest, TheLogSaysHowAFileIsUsed) {
  disk().io = EngineKind::kThreads;
  disk().direct = false;
  SetLogLevel(LogLevel::kInfo);
  ::testing::internal::CaptureStderr();
  Start();
  Stop();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr(absl::StrCat("tier 'nvme' is on disk in ", folder_, ": window full: ",
                                          kDiskBlocks, " blocks by threads without O_DIRECT")));
  EXPECT_THAT(log, HasSubstr(absl::StrCat("; ", kDiskBlocks, " slots scanned in ")));
  EXPECT_THAT(log, HasSubstr("tier 'nvme': 0 blocks are cached again"));
}

// Sends this process's stderr to a file. Unlike gtest's capture it can be read meanwhile.
class StderrInFile {
 public:
  explicit StderrInFile(const std::string& path) : path_(path), before_(dup(STDERR_FILENO)) {
    const int file = open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    dup2(file, STDERR_FILENO);
    close(file);
  }
  ~StderrInFile() {
    dup2(before_, STDERR_FILENO);
    close(before_);
  }
  std::string text() const {
    std::ifstream in(path_);
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  const std::string path_;
  const int before_;
};

TEST_F(DiskTierTest, TheCacheGoesOnWithoutAFileThatIsGone) {
  Start();
  Cache(TokensTo(12));
  ASSERT_TRUE(Eventually([&] { return Stats().backups == 3; }));
  std::filesystem::remove(file());
  const StderrInFile log(absl::StrCat(folder_, "/log"));
  // An erase syncs, and detects the loss.
  Run(InvalidatePrefix{.tokens = TokensTo(8)});
  Cache(TokensTo(12));
  EXPECT_EQ(std::get<MatchedPrefix>(Run(MatchPrefix{.tokens = TokensTo(13)})).matched_tokens, 12u);
  const std::string line = "the file of window full is off until the next start: ";
  ASSERT_TRUE(Eventually([&] { return absl::StrContains(log.text(), line); }));
  absl::SleepFor(3 * DiskTier::kLookInterval);  // Time to say it again.
  EXPECT_EQ(log.text().find(line), log.text().rfind(line)) << log.text();
  manager().Read(&BlockManager::CheckInvariants);
}

}  // namespace
}  // namespace pagoda::server

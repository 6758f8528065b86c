// What comes back from the files of a disk tier. Once everything is durable: exactly the naive
// model's content. After a kill or a power cut: whole blocks only. Never: erased content.
#include "manager/disk/disk_recovery.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/manager/disk/disk_cache.h"
#include "tests/pools/file/simulated_disk.h"
#include "tests/pools/file/slab_test_file.h"

namespace pagoda {
namespace {

using Step = DiskCarrier::Step;

class DiskRecoveryTest : public testing::Test {
 protected:
  DiskCache::Options CacheOptions() const { return {.files = DiskCache::FileOptions(directory_)}; }

  const TestFolder folder_{"/dev/shm"};
  const std::string directory_ = std::filesystem::path(folder_.file()).parent_path();
};

TEST_F(DiskRecoveryTest, FindsExactlyWhatTheModelHas) {
  DiskCache::Files files;
  uint64_t last_number = 0, recovered = 0, duplicates = 0, unreachable = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(seed);
    DiskCache cache(seed, CacheOptions());
    if (seed > 1) cache.SetModel(files, last_number);
    ASSERT_EQ(cache.Recovered(), DiskCache::Recoverable(cache.files()));
    const DiskRecoveryReport& report = cache.recovery().report;
    recovered += report.recovered;
    duplicates += report.lost_by(DiskLoss::kDuplicate);
    unreachable += report.lost_by(DiskLoss::kUnreachable);
    EXPECT_EQ(report.found, report.recovered + report.lost_by(DiskLoss::kDuplicate) +
                                report.lost_by(DiskLoss::kUnreachable));
    ASSERT_EQ(cache.FetchAll(), "");
    ASSERT_TRUE(cache.lost().empty());
    for (int i = 0; i < 60; ++i) cache.Step();
    ASSERT_EQ(cache.FetchAll(), "");
    ASSERT_TRUE(cache.lost().empty());
    ASSERT_TRUE(cache.WaitUntilIdle());
    files = cache.files();
    last_number = cache.last_number();
  }
  EXPECT_GT(recovered, 1000u);
  EXPECT_GT(duplicates, 10u);
  EXPECT_GT(unreachable, 20u);
}

// ---- Processes that are killed ----

// By window and path: whether it was erased and not written since. Shared with a child process.
using Doomed = std::array<std::array<std::atomic<bool>, 64>, 2>;

size_t IndexOf(const std::string& name) {
  const std::vector<DiskPath>& paths = DiskCache::Paths();
  for (size_t i = 0; i < paths.size(); ++i) {
    if (paths[i].Name() == name) return i;
  }
  ADD_FAILURE() << name;
  return 0;
}

void Watch(Doomed* doomed, DiskCache::Options& options) {
  options.on_write = [doomed](uint32_t w, const std::string& name) {
    (*doomed)[w][IndexOf(name)] = false;
  };
  options.on_erased = [doomed](uint32_t w, const std::string& name) {
    (*doomed)[w][IndexOf(name)] = true;
  };
}

uint64_t CheckNoneReturned(const Doomed& doomed, const DiskContent& recovered) {
  for (const auto& [where, slot] : recovered) {
    EXPECT_FALSE(doomed[where.first][IndexOf(where.second)])
        << where.second << " of window " << where.first << " was erased and came back";
  }
  return recovered.size();
}

// Works until the carrier is at `step` for the `count`-th time, and dies there. Exit status 1: its
// first recovery was wrong; 2: it never reached that step.
[[noreturn]] void WorkAndDie(DiskCache::Options options, uint64_t seed, Step step, int count) {
  std::atomic<int> left = count;
  options.may_fail = true;
  options.carrier.at_step = [&](Step at, uint32_t) {
    if (at == step && left.fetch_sub(1) == 1) kill(getpid(), SIGKILL);
  };
  DiskCache cache(seed, options);
  if (!cache.FetchAll().empty()) _exit(1);
  for (int i = 0; i < 100'000; ++i) {
    cache.Step();
    if (i % 8 == 0) cache.Settle();
  }
  _exit(2);
}

class DiskKillTest : public DiskRecoveryTest, public testing::WithParamInterface<Step> {};

TEST_P(DiskKillTest, WhatIsRecoveredIsWholeAndWasNotErased) {
  void* const shared =
      mmap(nullptr, sizeof(Doomed), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto* const doomed = new (shared) Doomed{};
  DiskCache::Options options = CacheOptions();
  Watch(doomed, options);
  uint64_t recovered = 0, lost = 0;
  for (uint64_t round = 1; round <= 40; ++round) {
    SCOPED_TRACE(round);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) WorkAndDie(options, round, GetParam(), static_cast<int>(1 + round * 7 % 9));
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        << (WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    DiskCache::Options again = CacheOptions();
    again.may_fail = true;
    DiskCache cache(round, again);
    recovered += CheckNoneReturned(*doomed, cache.Recovered());
    ASSERT_EQ(cache.FetchAll(), "");
    lost += cache.lost().size();
  }
  munmap(shared, sizeof(Doomed));
  EXPECT_GT(recovered, 150u) << "nearly everything was lost: the rounds say nothing";
  EXPECT_LT(lost, recovered / 10);
}

std::string StepName(const testing::TestParamInfo<Step>& step) {
  constexpr std::array kNames = {"BeforeWrite", "WriteStarted", "Written", "BeforeErase", "Erased"};
  return kNames[static_cast<size_t>(step.param)];
}

INSTANTIATE_TEST_SUITE_P(Steps, DiskKillTest,
                         testing::Values(Step::kBeforeWrite, Step::kWriteStarted, Step::kWritten,
                                         Step::kBeforeErase, Step::kErased),
                         StepName);

// ---- Power cuts ----

// A simulated disk that the two threads of a window can share.
class LockedEngine final : public FileEngine {
 public:
  LockedEngine(std::shared_ptr<SimulatedDisk> disk, absl::Mutex* mutex)
      : engine_(std::move(disk), nullptr), mutex_(mutex) {}

  void Submit(FileRequest request) override {
    const std::function<void(int)> done = std::move(request.done);
    int result = 0;
    request.done = [&](int error) { result = error; };
    {
      const absl::MutexLock lock(mutex_);
      engine_.Submit(std::move(request));
    }
    done(result);
  }
  void Stop() override {}
  std::string_view name() const override { return "simulated"; }

 private:
  SimulatedEngine engine_;
  absl::Mutex* const mutex_;
};

class DiskPowerTest : public DiskRecoveryTest {
 protected:
  // Runs of one cache, each ended by a power cut.
  void RunSeed(uint64_t seed) {
    std::mt19937_64 random(seed);
    const std::string folder = absl::StrCat(directory_, "/", seed);
    std::filesystem::create_directory(folder);
    absl::Mutex mutex;
    std::vector<std::shared_ptr<SimulatedDisk>> disks;
    for (int w = 0; w < 2; ++w) disks.push_back(std::make_shared<SimulatedDisk>(random()));
    Doomed doomed = {};
    DiskCache::Options options = {.files = DiskCache::FileOptions(folder), .may_fail = true};
    options.files.make_engine = [&](uint32_t w, int, uint32_t) {
      return absl::StatusOr<std::unique_ptr<FileEngine>>(
          std::make_unique<LockedEngine>(disks[w], &mutex));
    };
    Watch(&doomed, options);
    DiskCache::Files durable;
    for (int life = 0; life < 5 && !HasFailure(); ++life) {
      DiskCache cache(random(), options);
      recovered_ += CheckNoneReturned(doomed, cache.Recovered());
      const DiskContent expected = DiskCache::Recoverable(durable);
      const DiskContent found = cache.Recovered();
      ASSERT_EQ(cache.FetchAll(), "");
      torn_ += cache.lost().size();
      for (const auto& [where, slot] : expected) {
        ++durable_;
        ASSERT_TRUE(found.contains(where)) << where.second << " was durable";
        ASSERT_FALSE(found.at(where) == slot && cache.lost().contains(where)) << where.second;
      }
      durable = Live(cache, disks, mutex, random);
      for (const std::shared_ptr<SimulatedDisk>& disk : disks) disk->PowerUp();
    }
  }

  // Returns the content that was durable and not touched since.
  static DiskCache::Files Live(DiskCache& cache, std::vector<std::shared_ptr<SimulatedDisk>>& disks,
                               absl::Mutex& mutex, std::mt19937_64& random) {
    DiskCache::Files synced(2);
    {
      const absl::MutexLock lock(&mutex);
      for (const std::shared_ptr<SimulatedDisk>& disk : disks) disk->CutAfter(random() % 120);
    }
    for (int step = 0; step < 60; ++step) {
      cache.Step();
      if (random() % 8 == 0) cache.Settle();
      if (random() % 16 == 0 && cache.WaitUntilIdle()) synced = cache.files();
    }
    cache.Settle();
    for (uint32_t w = 0; w < synced.size(); ++w) {
      for (uint32_t slot = 0; slot < synced[w].size(); ++slot) {
        if (synced[w][slot] != cache.files()[w][slot]) synced[w][slot].reset();
      }
    }
    cache.carrier().Stop();
    return synced;
  }

  uint64_t recovered_ = 0, durable_ = 0, torn_ = 0;
};

TEST_F(DiskPowerTest, OnlyWholeBlocksReturnAndWhatWasErasedDoesNot) {
  for (uint64_t seed = 1; seed <= 80 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RunSeed(seed);
  }
  EXPECT_GT(recovered_, 700u);
  EXPECT_GT(durable_, 100u);
  EXPECT_GT(torn_, 20u);
}

// ---- By hand ----

class DiskLinksTest : public DiskRecoveryTest {
 protected:
  static constexpr uint32_t kFull = 1;

  // Writes a record as a carrier would, with any bytes.
  void Put(uint32_t slot, WriteId id, WriteId parent, uint32_t name_space,
           std::vector<TokenId> tokens, Priority priority = kDefaultPriority) {
    const DiskPath path = {.name_space = name_space};
    PutRecord(slot,
              EncodeRecord(
                  id, parent,
                  {.name_space = path.Key(), .tokens = std::move(tokens), .priority = priority}));
  }
  void PutRecord(uint32_t slot, const Bytes& record) {
    SlabFile& file = *Files().Find(kFull);
    ASSERT_TRUE(WriteBlock(file, slot, record, RandomBytes(slot, file.payload_bytes())).ok());
  }
  DiskFiles& Files() {
    if (files_ == nullptr) {
      files_ = *DiskFiles::Open(DiskCache::Layout(), DiskCache::FileOptions(directory_));
    }
    return *files_;
  }
  static std::vector<TokenId> Full(TokenId token) {
    return std::vector<TokenId>(DiskCache::kTokensPerBlock, token);
  }
  static std::vector<uint32_t> SlotsOf(const DiskRecovery& recovery) {
    std::vector<uint32_t> slots;
    for (const RecoveredBlock& block : recovery.windows[kFull].blocks) {
      slots.push_back(block.slot.slot.value());
    }
    return slots;
  }

  std::unique_ptr<DiskFiles> files_;
};

TEST_F(DiskLinksTest, ABlockWhoseParentWasWrittenAgainIsDropped) {
  Put(0, 5, 0, 0, Full(1));
  Put(1, 6, 5, 0, Full(2));
  Put(2, 7, 6, 0, Full(3));
  Put(1, 8, 5, 0, Full(4));
  const DiskRecovery recovery = RecoverDisk(Files());
  EXPECT_EQ(SlotsOf(recovery), (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(recovery.windows[kFull].blocks[1].tokens, Full(4));
  EXPECT_EQ(recovery.report.lost_by(DiskLoss::kUnreachable), 1u);
  EXPECT_EQ(recovery.ledgers[kFull].num_held(), 2u);
  EXPECT_EQ(recovery.ledgers[kFull].num_stale(), 1u);
  EXPECT_EQ(recovery.ledgers[kFull].id(SlotIndex(1)), 8u);
}

TEST_F(DiskLinksTest, OfTwoOfOneContentTheLaterIsTakenAndHasTheChildrenOfBoth) {
  Put(0, 1, 0, 1, Full(1), Priority{10});
  Put(1, 2, 1, 1, Full(2));
  Put(2, 3, 0, 1, Full(1), Priority{20});
  Put(3, 4, 3, 1, Full(3));
  Put(4, 5, 0, 2, Full(1));  // The same content in another namespace.
  const DiskRecovery recovery = RecoverDisk(Files(), {.tier = Tier{2}});
  EXPECT_EQ(SlotsOf(recovery), (std::vector<uint32_t>{2, 1, 3, 4}));
  const std::vector<RecoveredBlock>& blocks = recovery.windows[kFull].blocks;
  EXPECT_EQ(blocks[0].priority, Priority{20});
  EXPECT_EQ(blocks[0].slot.tier, Tier{2});
  EXPECT_EQ(blocks[1].parent, 0u);
  EXPECT_EQ(blocks[2].parent, 0u);
  EXPECT_EQ(blocks[3].parent, RecoveredBlock::kRoot);
  EXPECT_EQ(recovery.report.lost_by(DiskLoss::kDuplicate), 1u);
  EXPECT_EQ(recovery.ledgers[kFull].num_stale(), 1u);
}

TEST_F(DiskLinksTest, ATailHasNoChildrenAndDamagedRecordsAreNoBlocks) {
  Put(0, 1, 0, 0, {1, 2, 3});
  Put(1, 2, 1, 0, Full(2));
  Put(2, 4, 4, 0, Full(2));  // Its own parent.
  Put(3, 5, 9, 0, Full(2));  // Older than its parent.
  Put(4, kMaxWrite + 1, 0, 0, Full(3));
  Put(5, 6, 0, 0, std::vector<TokenId>(DiskCache::kTokensPerBlock + 1, 1));
  PutRecord(6, Bytes(3));
  Bytes longer = EncodeRecord(7, 0, {.tokens = Full(1)});
  longer.push_back(std::byte{0});
  PutRecord(7, longer);
  const DiskRecovery recovery = RecoverDisk(Files());
  EXPECT_EQ(SlotsOf(recovery), (std::vector<uint32_t>{0}));
  EXPECT_EQ(recovery.report.lost_by(DiskLoss::kUnreachable), 1u);
  EXPECT_EQ(recovery.report.lost_by(DiskLoss::kDamagedRecord), 6u);
  EXPECT_EQ(recovery.ledgers[kFull].num_stale(), 7u);
}

TEST_F(DiskLinksTest, ARefusedNamespaceIsDroppedWithAllBelowIt) {
  Put(0, 1, 0, 0, Full(1));
  Put(1, 2, 0, 1, Full(1));
  Put(2, 3, 2, 1, Full(1));
  const DiskRecovery recovery =
      RecoverDisk(Files(), {.accepts = [](const NamespaceKey& key) { return key.tenant.empty(); }});
  EXPECT_EQ(SlotsOf(recovery), (std::vector<uint32_t>{0}));
  EXPECT_EQ(recovery.report.lost_by(DiskLoss::kRefused), 1u);
  EXPECT_EQ(recovery.report.lost_by(DiskLoss::kUnreachable), 1u);
}

TEST_F(DiskLinksTest, ExtrasTellContentsApart) {
  SlotContent content = {.tokens = Full(1)};
  PutRecord(0, EncodeRecord(1, 0, content));
  content.extras.resize(content.tokens.size());
  PutRecord(1, EncodeRecord(2, 0, content));  // No extras, given for each token, mean the same.
  content.extras[3] = {.extra_id = 4, .digest = {1, 2, 3, 4}, .item_offset = 5, .in_item = true};
  PutRecord(2, EncodeRecord(3, 0, content));
  const DiskRecovery recovery = RecoverDisk(Files());
  EXPECT_EQ(SlotsOf(recovery), (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(recovery.windows[kFull].blocks[1].extras, content.extras);
}

TEST_F(DiskLinksTest, WritesGetIdsAboveAllThatWereAndAboveTheClock) {
  Put(0, 1000, 0, 0, Full(1));
  WriteLedger before = RecoverDisk(Files(), {.now = absl::FromUnixMicros(7)}).ledgers[kFull];
  EXPECT_EQ(before.Write(SlotIndex(3)), 1001u);
  EXPECT_EQ(before.Write(SlotIndex(3)), 1002u);
  WriteLedger after = RecoverDisk(Files(), {.now = absl::FromUnixMicros(5000)}).ledgers[kFull];
  EXPECT_EQ(after.Write(SlotIndex(3)), 5000u);
}

TEST_F(DiskLinksTest, ProgressCountsTheSlotsOfAllFiles) {
  uint64_t last = 0, total = 0;
  const DiskRecovery recovery =
      RecoverDisk(Files(), {.progress = [&](uint64_t scanned, uint64_t slots) {
                    EXPECT_GT(scanned, last);
                    last = scanned;
                    total = slots;
                  }});
  EXPECT_EQ(last, 26u);
  EXPECT_EQ(total, 26u);
  EXPECT_EQ(recovery.report.slots, 26u);
}

TEST_F(DiskLinksTest, DamagedHeadersAndRecordsAreDamageAndOtherLossesAreNone) {
  Put(0, 5, 0, 0, Full(1));
  Put(1, 6, 4, 0, Full(2));
  Put(2, 7, 0, 0, Full(1));
  DiskRecovery recovery = RecoverDisk(Files());
  EXPECT_EQ(recovery.report.lost_by(DiskLoss::kUnreachable), 1u);
  EXPECT_EQ(recovery.report.lost_by(DiskLoss::kDuplicate), 1u);
  EXPECT_FALSE(HasDamage(recovery.report)) << Describe(recovery.report);
  PutRecord(3, RandomBytes(3, 40));
  recovery = RecoverDisk(Files());
  EXPECT_EQ(recovery.report.lost_by(DiskLoss::kDamagedRecord), 1u);
  EXPECT_TRUE(HasDamage(recovery.report)) << Describe(recovery.report);
  Put(3, 8, 0, 0, Full(3));
  EXPECT_FALSE(HasDamage(RecoverDisk(Files()).report));
  // Another program writes over the header of slot 0 in the files of both windows.
  for (const auto& file : std::filesystem::directory_iterator(directory_)) {
    std::fstream(file.path(), std::ios::binary | std::ios::in | std::ios::out)
            .seekp(static_cast<std::streamoff>(slab::SlotOffset(0, 1)))
        << std::string(100, 'x');
  }
  recovery = RecoverDisk(Files());
  EXPECT_EQ(recovery.report.damaged, 2u);
  EXPECT_THAT(recovery.report.damaged_slots, ::testing::ElementsAre(1u, 1u));
  EXPECT_TRUE(HasDamage(recovery.report)) << Describe(recovery.report);
}

TEST_F(DiskLinksTest, AFileThatCannotBeReadGivesNothingAndAllOfItIsStale) {
  Put(0, 1, 0, 0, Full(1));
  files_.reset();
  DiskFiles::Options options = DiskCache::FileOptions(directory_);
  options.max_read_errors = 1;
  std::atomic<bool> fails = false;
  options.make_engine = [&](uint32_t, int fd, uint32_t depth) {
    return absl::StatusOr<std::unique_ptr<FileEngine>>(std::make_unique<FaultyEngine>(
        *MakeThreadEngine(fd, depth), [&](const FileRequest&) { return fails ? EIO : 0; }));
  };
  files_ = *DiskFiles::Open(DiskCache::Layout(), options);
  fails = true;
  const DiskRecovery recovery = RecoverDisk(Files());
  EXPECT_EQ(recovery.report.not_scanned.size(), 2u) << Describe(recovery.report);
  EXPECT_TRUE(recovery.windows[kFull].blocks.empty());
  EXPECT_EQ(recovery.ledgers[kFull].num_stale(), recovery.ledgers[kFull].num_slots());
}

}  // namespace
}  // namespace pagoda

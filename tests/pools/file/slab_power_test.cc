// Crashes: a model of the possible disk contents, against random operations and power cuts at every
// step; and a killed process.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <set>

#include "tests/pools/file/simulated_disk.h"
#include "tests/pools/file/slab_test_file.h"

namespace pagoda {
namespace {

constexpr uint64_t kPayload = 2 * slab::kPageBytes;
constexpr uint32_t kSlots = 5;
constexpr uint64_t kNone = 0;  // No block.

// By slot: the current block, and the blocks that a power cut can leave instead.
struct Model {
  std::vector<uint64_t> current = std::vector<uint64_t>(kSlots, kNone);
  std::vector<std::set<uint64_t>> possible =
      std::vector<std::set<uint64_t>>(kSlots, std::set<uint64_t>{kNone});

  void Put(uint32_t slot, uint64_t block) {
    current[slot] = block;
    possible[slot].insert(block);
    possible[slot].insert(kNone);  // Torn.
  }
  void Settle() {
    for (uint32_t slot = 0; slot < kSlots; ++slot) possible[slot] = {current[slot]};
  }
};

class PowerCuts {
 public:
  PowerCuts(const std::string& path, uint64_t seed, bool with_errors)
      : random_(seed), disk_(std::make_shared<SimulatedDisk>(seed)), with_errors_(with_errors) {
    options_.path = path;
    options_.num_slots = kSlots;
    options_.payload_bytes = kPayload;
    options_.caching = SlabFile::Caching::kBuffered;
    options_.depth = 2;
    options_.max_write_errors = 1000;
    options_.make_engine = [this](int, uint32_t) -> absl::StatusOr<std::unique_ptr<FileEngine>> {
      return std::make_unique<SimulatedEngine>(
          disk_, [this](const FileRequest& request) { return Fault(request); });
    };
  }

  void Run() {
    for (int life = 0; life < 4 && !::testing::Test::HasFailure(); ++life) {
      disk_->CutAfter(random_() % 40);
      Live();
      // A killed process leaves all its writes; a power cut does not.
      disk_->PowerUp();
      armed_ = false;
      Check();
      armed_ = true;
    }
  }

 private:
  int Fault(const FileRequest& request) {
    if (!with_errors_ || !armed_ || request.kind == FileRequest::Kind::kRead) return 0;
    return random_() % 12 == 0 ? EIO : 0;
  }

  void Live() {
    absl::StatusOr<std::unique_ptr<SlabFile>> file = SlabFile::Open(options_);
    if (!file.ok()) return;
    for (int step = 0; step < 30 && !disk_->is_cut(); ++step) {
      const auto slot = static_cast<uint32_t>(random_() % kSlots);
      switch (random_() % 10) {
        case 0:
          if ((*file)->Sync().ok()) Settle();
          break;
        case 1:
          Erase(**file, slot);
          break;
        case 2:
          Reset(**file);
          break;
        default:
          Write(**file, slot);
      }
    }
  }

  void Write(SlabFile& file, uint32_t slot) {
    const uint64_t block = ++last_block_;
    const absl::Status status = WriteBlock(file, slot, RecordOf(block), PayloadOf(block));
    if (status.code() == absl::StatusCode::kFailedPrecondition) return;
    model_.Put(slot, block);
    if (status.ok()) {
      failed_.erase(slot);
    } else {
      failed_.insert(slot);
    }
  }

  void Erase(SlabFile& file, uint32_t slot) {
    const std::vector<SlotIndex> slots = {SlotIndex(slot), SlotIndex((slot + 1) % kSlots)};
    const bool erased = file.Erase(slots).ok();
    for (const SlotIndex each : slots) model_.Put(each.value(), kNone);
    if (!erased) {
      // The content of the disk stays until another Erase.
      for (const SlotIndex each : slots) failed_.insert(each.value());
      return;
    }
    // The erase also removes the remains of failed writes.
    for (const uint32_t each : failed_) model_.Put(each, kNone);
    failed_.clear();
    if (!reset_failed_) return model_.Settle();
    for (const SlotIndex each : slots) model_.possible[each.value()] = {kNone};
  }

  void Reset(SlabFile& file) {
    reset_failed_ = !file.Reset().ok();
    for (uint32_t slot = 0; slot < kSlots; ++slot) model_.Put(slot, kNone);
    if (reset_failed_) return;
    failed_.clear();
    model_.Settle();
  }

  // A slot whose write failed can hold the new block, the previous one, or none.
  void Settle() {
    if (reset_failed_) return;
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      if (!failed_.contains(slot)) model_.possible[slot] = {model_.current[slot]};
    }
  }

  void Check() {
    absl::StatusOr<std::unique_ptr<SlabFile>> file = SlabFile::Open(options_);
    ASSERT_TRUE(file.ok()) << file.status();
    const std::map<uint32_t, Bytes> found = ScanAll(**file);
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      std::optional<uint64_t> block;
      for (uint64_t each = 1; each <= last_block_; ++each) {
        const absl::StatusOr<Bytes> read = ReadBlock(**file, slot, RecordOf(each), kPayload);
        if (!read.ok()) continue;
        ASSERT_FALSE(block.has_value());
        ASSERT_EQ(*read, PayloadOf(each));
        ASSERT_TRUE(found.contains(slot) && found.at(slot) == RecordOf(each));
        block = each;
      }
      ASSERT_TRUE(model_.possible[slot].contains(block.value_or(kNone)))
          << "slot " << slot << " holds block " << block.value_or(kNone);
      model_.current[slot] = block.value_or(kNone);
    }
    failed_.clear();
    reset_failed_ = false;
    model_.Settle();
  }

  static Bytes PayloadOf(uint64_t block) {
    Bytes bytes(kPayload, static_cast<std::byte>(block));
    bytes[0] = static_cast<std::byte>(block >> 8);
    return bytes;
  }

  std::mt19937_64 random_;
  const std::shared_ptr<SimulatedDisk> disk_;
  const bool with_errors_;
  bool armed_ = true;
  SlabFile::Options options_;
  Model model_;
  std::set<uint32_t> failed_;  // Slots whose write or tombstone failed.
  bool reset_failed_ = false;  // If a reset failed, any block can return until one succeeds.
  uint64_t last_block_ = 0;
};

void RunSeeds(uint64_t first, uint64_t count, bool with_errors) {
  const TestFolder folder("/dev/shm");
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const std::string path = absl::StrCat(folder.file(), seed);
    PowerCuts(path, seed, with_errors).Run();
    unlink(path.c_str());
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(SlabPowerTest, AfterPowerCutsOnlyWholeBlocksReturnAndTombstonesHold) {
  RunSeeds(1, 2000, false);
}

TEST(SlabPowerTest, AlsoWhereWritesAndSyncsFail) { RunSeeds(100000, 2000, true); }

// ---- A killed process ----

Bytes BlockOf(uint32_t slot, uint64_t version) {
  return RandomBytes(slot * 1000 + version, 4 * kPayload);
}

Bytes RecordOfVersion(uint32_t slot, uint64_t version) { return RecordOf(slot * 1000 + version); }

SlabFile::Options KilledOptions(const TestFolder& folder, EngineKind engine) {
  SlabFile::Options options;
  options.path = folder.file();
  options.num_slots = 16;
  options.payload_bytes = 4 * kPayload;
  options.engine = engine;
  return options;
}

// Writes versions endlessly, several slots at once. Erases the last slot first.
[[noreturn]] void WriteUntilKilled(const SlabFile::Options& options, int ready) {
  absl::StatusOr<std::unique_ptr<SlabFile>> file = SlabFile::Open(options);
  if (!file.ok()) _exit(1);
  const Bytes doomed = BlockOf(15, 0);
  if (!WriteBlock(**file, 15, RecordOfVersion(15, 0), doomed).ok()) _exit(2);
  if (!(*file)->Erase({SlotIndex(15)}).ok()) _exit(3);
  if (write(ready, "x", 1) != 1) _exit(4);
  for (uint64_t version = 0;; ++version) {
    std::vector<Bytes> blocks;
    for (uint32_t slot = 0; slot < 15; ++slot) blocks.push_back(BlockOf(slot, version % 20));
    for (uint32_t slot = 0; slot < 15; ++slot) {
      (*file)->Write(SlotIndex(slot), RecordOfVersion(slot, version % 20),
                     {absl::MakeConstSpan(blocks[slot])}, [](absl::Status) {});
    }
    (*file)->WaitUntilIdle();
  }
}

class SlabKillTest : public ::testing::TestWithParam<EngineKind> {};

TEST_P(SlabKillTest, OnlyWholeBlocksReturnAfterSigkill) {
  if (GetParam() == EngineKind::kUring && !MakeUringEngine(0, 1).ok()) GTEST_SKIP();
  const TestFolder folder("/var/tmp");
  const SlabFile::Options options = KilledOptions(folder, GetParam());
  size_t whole = 0;
  for (int round = 0; round < 25; ++round) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) WriteUntilKilled(options, ready[1]);
    close(ready[1]);
    char byte;
    ASSERT_EQ(read(ready[0], &byte, 1), 1) << "the child could not begin";
    close(ready[0]);
    usleep(static_cast<useconds_t>(round * 700));
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    absl::StatusOr<std::unique_ptr<SlabFile>> file = SlabFile::Open(options);
    ASSERT_TRUE(file.ok()) << file.status();
    const std::map<uint32_t, Bytes> found = ScanAll(**file);
    EXPECT_FALSE(found.contains(15)) << "a tombstone was lost";
    for (const auto& [slot, record] : found) {
      const absl::StatusOr<Bytes> read = ReadBlock(**file, slot, record, 4 * kPayload);
      if (!read.ok()) continue;  // Torn.
      ++whole;
      bool known = false;
      for (uint64_t version = 0; version < 20 && !known; ++version) {
        known = record == RecordOfVersion(slot, version) && *read == BlockOf(slot, version);
      }
      EXPECT_TRUE(known) << "slot " << slot;
    }
  }
  EXPECT_GT(whole, 100u);
}

INSTANTIATE_TEST_SUITE_P(Engines, SlabKillTest,
                         ::testing::Values(EngineKind::kUring, EngineKind::kThreads));

}  // namespace
}  // namespace pagoda

// D3: errors of the system, degradation, and the end of work in flight.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "tests/pools/file/simulated_disk.h"
#include "tests/pools/file/slab_test_file.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kPayload = 4 * slab::kPageBytes;
constexpr uint32_t kSlots = 16;

class SlabFaults : public ::testing::Test {
 protected:
  using Kind = FileRequest::Kind;

  SlabFaults() {
    options_.path = folder_.file();
    options_.num_slots = kSlots;
    options_.payload_bytes = kPayload;
    options_.max_write_errors = 3;
    options_.max_read_errors = 2;
    options_.make_engine = [this](int fd,
                                  uint32_t depth) -> absl::StatusOr<std::unique_ptr<FileEngine>> {
      absl::StatusOr<std::unique_ptr<FileEngine>> engine =
          MakeFileEngine(EngineKind::kAuto, fd, depth);
      if (!engine.ok()) return engine.status();
      return std::make_unique<FaultyEngine>(*std::move(engine), [this](const FileRequest& request) {
        return request.kind == failing_ ? error_.load() : 0;
      });
    };
    Open();
  }
  void Open() {
    file_.reset();
    absl::StatusOr<std::unique_ptr<SlabFile>> file = SlabFile::Open(options_);
    ASSERT_TRUE(file.ok()) << file.status();
    file_ = *std::move(file);
  }
  void Fail(Kind kind, int error) {
    failing_ = kind;
    error_ = error;
  }
  absl::Status Write(uint32_t slot, uint64_t block) {
    return WriteBlock(*file_, slot, RecordOf(block), RandomBytes(block, kPayload));
  }
  absl::Status Read(uint32_t slot, uint64_t block) {
    return ReadBlock(*file_, slot, RecordOf(block), kPayload).status();
  }

  TestFolder folder_{"/dev/shm"};
  std::atomic<Kind> failing_ = Kind::kRead;
  std::atomic<int> error_ = 0;
  SlabFile::Options options_;
  std::unique_ptr<SlabFile> file_;
};

TEST_F(SlabFaults, AFailedWriteQuarantinesItsSlotAndManyMakeTheFileReadOnly) {
  ASSERT_TRUE(Write(0, 1).ok());
  ASSERT_TRUE(Write(5, 5).ok());
  Fail(Kind::kWrite, EIO);
  EXPECT_FALSE(Write(0, 2).ok());
  Fail(Kind::kWrite, 0);
  EXPECT_THAT(std::string(Write(0, 2).message()), HasSubstr("quarantined"));
  EXPECT_THAT(std::string(Read(0, 1).message()), HasSubstr("quarantined"));
  EXPECT_TRUE(Write(1, 3).ok());
  EXPECT_EQ(file_->stats().mode, SlabMode::kReadWrite);
  EXPECT_EQ(file_->stats().quarantined_slots, 1u);
  Fail(Kind::kWrite, EIO);
  EXPECT_FALSE(Write(2, 4).ok());
  EXPECT_FALSE(Write(3, 4).ok());
  Fail(Kind::kWrite, 0);
  EXPECT_EQ(file_->stats().mode, SlabMode::kReadOnly);
  EXPECT_EQ(file_->stats().quarantined_slots, 3u);
  EXPECT_THAT(std::string(Write(4, 5).message()), HasSubstr("read-only"));
  EXPECT_TRUE(Read(5, 5).ok());
  // What is read-only still forgets.
  EXPECT_TRUE(file_->Erase({SlotIndex(5)}).ok());
  Open();
  EXPECT_EQ(ScanAll(*file_).size(), 1u)
      << "block 3; block 1 went with the failed write's tombstone";
  EXPECT_TRUE(Write(0, 6).ok()) << "a new start tries the slot again";
}

TEST_F(SlabFaults, ENOSPCMakesTheFileReadOnlyAtOnce) {
  Fail(Kind::kWrite, ENOSPC);
  EXPECT_FALSE(Write(0, 1).ok());
  EXPECT_EQ(file_->stats().mode, SlabMode::kReadOnly);
  EXPECT_THAT(file_->stats().mode_reason, HasSubstr("No space"));
}

TEST_F(SlabFaults, FailedReadsTurnItOff) {
  ASSERT_TRUE(Write(0, 1).ok());
  Fail(Kind::kRead, EIO);
  EXPECT_FALSE(Read(0, 1).ok());
  Fail(Kind::kRead, 0);
  EXPECT_TRUE(Read(0, 1).ok());
  Fail(Kind::kRead, EIO);
  EXPECT_FALSE(Read(0, 1).ok());
  Fail(Kind::kRead, 0);
  EXPECT_EQ(file_->stats().mode, SlabMode::kOff);
  EXPECT_THAT(std::string(Read(0, 1).message()), HasSubstr("off"));
}

TEST_F(SlabFaults, AFailedTombstoneIsAnErrorAndResetIsTheWayOut) {
  ASSERT_TRUE(Write(0, 1).ok());
  Fail(Kind::kWrite, EIO);
  EXPECT_FALSE(file_->Erase({SlotIndex(0)}).ok());
  Fail(Kind::kWrite, 0);
  EXPECT_TRUE(file_->Reset().ok());
  Open();
  EXPECT_TRUE(ScanAll(*file_).empty());
}

TEST_F(SlabFaults, AFailedSyncIsRememberedUntilAReset) {
  ASSERT_TRUE(Write(0, 1).ok());
  Fail(Kind::kSync, EIO);
  EXPECT_FALSE(file_->Sync().ok());
  Fail(Kind::kSync, 0);
  EXPECT_EQ(file_->stats().mode, SlabMode::kReadOnly);
  EXPECT_FALSE(file_->Sync().ok());
  EXPECT_FALSE(file_->Erase({SlotIndex(0)}).ok());
  EXPECT_TRUE(file_->Reset().ok());
  EXPECT_TRUE(file_->Sync().ok());
}

TEST_F(SlabFaults, AFailedResetServesNothing) {
  ASSERT_TRUE(Write(0, 1).ok());
  Fail(Kind::kWrite, EIO);
  EXPECT_FALSE(file_->Reset().ok());
  Fail(Kind::kWrite, 0);
  EXPECT_EQ(file_->stats().mode, SlabMode::kOff);
  EXPECT_FALSE(Read(0, 1).ok());
  EXPECT_TRUE(file_->Reset().ok()) << "it may be tried again";
  Open();
  EXPECT_TRUE(ScanAll(*file_).empty());
}

TEST_F(SlabFaults, AnUnreadableHeaderIsQuarantinedAndTombstoned) {
  ASSERT_TRUE(Write(0, 1).ok());
  options_.max_read_errors = 100;
  Open();
  Fail(Kind::kRead, EIO);
  SlabFile::ScanResult counts;
  EXPECT_TRUE(ScanAll(*file_, &counts).empty());
  EXPECT_EQ(counts.unreadable, kSlots);
  Fail(Kind::kRead, 0);
  EXPECT_TRUE(file_->Erase({}).ok());
  Open();
  EXPECT_TRUE(ScanAll(*file_).empty()) << "nobody knew of the block, so nobody could erase it";
}

TEST_F(SlabFaults, AVanishedFileAndACutOneTurnItOff) {
  ASSERT_TRUE(Write(0, 1).ok());
  ASSERT_EQ(truncate(folder_.file().c_str(), 8192), 0);
  EXPECT_FALSE(Read(0, 1).ok());
  EXPECT_EQ(file_->Sync().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(file_->stats().mode, SlabMode::kOff);
  Open();
  EXPECT_TRUE(ScanAll(*file_).empty());
  ASSERT_EQ(unlink(folder_.file().c_str()), 0);
  EXPECT_EQ(file_->Sync().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(file_->stats().mode, SlabMode::kOff);
}

TEST_F(SlabFaults, StopReportsEverythingOnce) {
  for (const uint32_t depth : {1u, 4u, 32u}) {
    options_.depth = depth;
    options_.make_engine = nullptr;
    options_.engine = depth == 4 ? EngineKind::kThreads : EngineKind::kAuto;
    Open();
    const Bytes payload = RandomBytes(1, kPayload);
    std::atomic<int> ok = 0, cancelled = 0, other = 0;
    int submitted = 0;
    std::thread stopper([&] {
      usleep(200);
      file_->Stop();
    });
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      ++submitted;
      file_->Write(SlotIndex(slot), RecordOf(slot), {absl::MakeConstSpan(payload)},
                   [&](absl::Status status) {
                     ++(status.ok() ? ok : absl::IsCancelled(status) ? cancelled : other);
                   });
    }
    stopper.join();
    EXPECT_EQ(ok + cancelled, submitted);
    EXPECT_EQ(other, 0);
    EXPECT_TRUE(absl::IsCancelled(Write(0, 1)));
    EXPECT_TRUE(absl::IsCancelled(file_->Sync()));
    EXPECT_TRUE(absl::IsCancelled(file_->Erase({})));
    file_->Stop();
  }
}

// Chains of operations from completions, while erases and syncs run between them.
TEST_F(SlabFaults, CompletionsMaySubmitWhileErasesRun) {
  options_.make_engine = nullptr;
  options_.depth = 3;
  Open();
  const Bytes payload = RandomBytes(1, kPayload);
  constexpr int kWritesPerSlot = 30;
  std::atomic<int> left[kSlots] = {}, ended = 0, failed = 0;
  std::function<void(uint32_t)> next = [&](uint32_t slot) {
    if (left[slot]++ == kWritesPerSlot) {
      ++ended;
      return;
    }
    file_->Write(SlotIndex(slot), RecordOf(1), {absl::MakeConstSpan(payload)},
                 [&, slot](absl::Status status) {
                   if (!status.ok()) ++failed;
                   next(slot);
                 });
  };
  for (uint32_t slot = 0; slot < kSlots - 1; ++slot) next(slot);
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(file_->Erase({SlotIndex(kSlots - 1)}).ok());
    EXPECT_TRUE(file_->Sync().ok());
  }
  while (ended + 1 < int{kSlots}) usleep(1000);
  file_->Drain();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(ScanAll(*file_).size(), kSlots - 1);
}

}  // namespace
}  // namespace pagoda

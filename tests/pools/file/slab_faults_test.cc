// Errors of the system, degradation, and the end of work in flight.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

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
        if (on_request_) on_request_(request);
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
  std::function<void(const FileRequest&)> on_request_;  // Set while no request runs.
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
  // A read-only file still supports Erase and Reset.
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
  EXPECT_TRUE(ScanAll(*file_).empty()) << "no caller knew of the block, so none could erase it";
}

TEST_F(SlabFaults, ASlotIsTombstonedOnceHoweverOftenItFailed) {
  options_.max_read_errors = 100;
  Open();
  Fail(Kind::kRead, EIO);
  ScanAll(*file_);
  ScanAll(*file_);
  Fail(Kind::kRead, 0);
  std::atomic<uint32_t> writes = 0;
  on_request_ = [&](const FileRequest& request) { writes += request.kind == Kind::kWrite; };
  EXPECT_TRUE(file_->Erase({}).ok());
  EXPECT_EQ(writes, kSlots);
  EXPECT_EQ(file_->stats().quarantined_slots, kSlots);
}

TEST_F(SlabFaults, AScanEndsWhenItsReadsTurnTheFileOffAndServesNothingAfterwards) {
  options_.depth = 2;
  Open();
  for (uint32_t slot = 0; slot < kSlots; ++slot) ASSERT_TRUE(Write(slot, slot).ok());
  std::atomic<uint32_t> reads = 0;
  on_request_ = [&](const FileRequest& request) { reads += request.kind == Kind::kRead; };
  Fail(Kind::kRead, EIO);
  const auto scan = [&] {
    return file_->Scan([](SlotIndex, SlabFile::Record, uint64_t) { ADD_FAILURE(); }, nullptr)
        .status()
        .code();
  };
  EXPECT_EQ(scan(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(file_->stats().mode, SlabMode::kOff);
  EXPECT_LE(reads, options_.max_read_errors + options_.depth);
  Fail(Kind::kRead, 0);
  EXPECT_EQ(scan(), absl::StatusCode::kFailedPrecondition) << "and no block is served";
}

TEST_F(SlabFaults, OneUnreadableSuperblockIsSurvivedAndRepaired) {
  ASSERT_TRUE(Write(0, 1).ok());
  file_.reset();
  for (const uint64_t superblock : {0, 1}) {
    const auto is_read = [&](const FileRequest& request) {
      return request.kind == Kind::kRead && request.offset_bytes == superblock * slab::kPageBytes;
    };
    on_request_ = [&](const FileRequest& request) {
      Fail(Kind::kRead, is_read(request) ? EIO : 0);
    };
    Open();
    EXPECT_TRUE(Read(0, 1).ok()) << superblock;
    file_.reset();
  }
  on_request_ = nullptr;
  Fail(Kind::kRead, EIO);
  options_.on_foreign = SlabFile::OnForeign::kReplace;
  EXPECT_FALSE(SlabFile::Open(options_).ok())
      << "no superblock is readable, so the owner is unknown";
  Fail(Kind::kRead, 0);
  Open();
  EXPECT_TRUE(Read(0, 1).ok());
}

TEST_F(SlabFaults, AVanishedFileAndACutOneTurnItOff) {
  ASSERT_TRUE(Write(0, 1).ok());
  ASSERT_EQ(truncate(folder_.file().c_str(), 8192), 0);
  EXPECT_FALSE(Read(0, 1).ok());
  EXPECT_EQ(file_->Sync().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(file_->stats().mode, SlabMode::kOff);
  options_.on_foreign = SlabFile::OnForeign::kReplace;
  Open();
  EXPECT_TRUE(ScanAll(*file_).empty());
  ASSERT_EQ(unlink(folder_.file().c_str()), 0);
  EXPECT_EQ(file_->Sync().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(file_->stats().mode, SlabMode::kOff);
}

TEST_F(SlabFaults, AnUnlinkedFileIsNoticedWithoutASync) {
  file_->CheckPresent();
  EXPECT_EQ(file_->stats().mode, SlabMode::kReadWrite);
  ASSERT_EQ(unlink(folder_.file().c_str()), 0);
  file_->CheckPresent();
  EXPECT_EQ(file_->stats().mode, SlabMode::kOff);
  EXPECT_THAT(file_->stats().mode_reason, ::testing::HasSubstr("was removed or replaced"));
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

// ---- Concurrent calls ----

TEST_F(SlabFaults, EachCallOfStopWaitsForWhatRuns) {
  absl::Notification began, may_end;
  on_request_ = [&](const FileRequest&) {
    began.Notify();
    may_end.WaitForNotification();
  };
  std::thread writer([&] { EXPECT_TRUE(Write(0, 1).ok()); });
  began.WaitForNotification();
  std::atomic<int> stopped = 0;
  std::vector<std::thread> stoppers;
  for (int i = 0; i < 2; ++i) {
    stoppers.emplace_back([&] {
      file_->Stop();
      ++stopped;
    });
  }
  usleep(50000);
  EXPECT_EQ(stopped, 0) << "a write runs still";
  may_end.Notify();
  for (std::thread& stopper : stoppers) stopper.join();
  writer.join();
}

TEST_F(SlabFaults, StopEndsAScan) {
  ASSERT_TRUE(Write(0, 1).ok());
  ASSERT_TRUE(Write(1, 2).ok());
  std::thread stopper;
  uint32_t blocks = 0;
  const Bytes payload = RandomBytes(3, kPayload);
  const absl::StatusOr<SlabFile::ScanResult> result = file_->Scan(
      [&](SlotIndex, SlabFile::Record, uint64_t) {
        if (++blocks > 1) return;
        // It waits for the end of the scan, unless Stop cancels it.
        absl::Notification cancelled;
        file_->Write(SlotIndex(3), {}, {absl::MakeConstSpan(payload)}, [&](absl::Status status) {
          EXPECT_TRUE(absl::IsCancelled(status));
          cancelled.Notify();
        });
        stopper = std::thread([&] { file_->Stop(); });
        cancelled.WaitForNotification();
      },
      nullptr);
  stopper.join();
  EXPECT_TRUE(absl::IsCancelled(result.status())) << result.status();
  EXPECT_EQ(blocks, 1u);
}

// The kernel reports a lost write to only one of several running syncs.
TEST_F(SlabFaults, OneSyncRunsAtATimeAlsoBesideAReset) {
  std::atomic<int> running = 0, most = 0;
  on_request_ = [&](const FileRequest& request) {
    if (request.kind != Kind::kSync) return;
    most = std::max(most.load(), ++running);
    usleep(2000);
    --running;
  };
  std::thread syncs([&] {
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(file_->Sync().ok());
  });
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(file_->Reset().ok());
  syncs.join();
  EXPECT_EQ(most, 1);
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
  file_->WaitUntilIdle();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(ScanAll(*file_).size(), kSlots - 1);
}

}  // namespace
}  // namespace pagoda

// Damage (D1) and errors of the system (D3): the carrier never serves a wrong block, reports every
// order once and stays usable.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/file_descriptor.h"
#include "tests/manager/disk/disk_carrier_fixture.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

class DiskFaultsTest : public DiskCarrierFixture {};

// ---- D1: damage ----

// The bytes of the full window's file, without the carrier's knowledge.
class FullFile {
 public:
  explicit FullFile(const std::string& directory)
      : fd_(open(DiskFiles::PathOf(directory, DiskCache::Layout(), 1).c_str(), O_RDWR)) {
    EXPECT_TRUE(fd_.valid());
  }

  static constexpr uint64_t kPayload = 11 * 1024;
  static constexpr size_t kPages = 4;  // The pages of a slot, with its header.
  Bytes Read(uint32_t slot) const {
    Bytes bytes(kPages * slab::kPageBytes);
    EXPECT_EQ(pread(fd_.get(), bytes.data(), bytes.size(), At(slot)), ssize_t(bytes.size()));
    return bytes;
  }
  void Write(uint32_t slot, const Bytes& bytes) const {
    EXPECT_EQ(pwrite(fd_.get(), bytes.data(), bytes.size(), At(slot)), ssize_t(bytes.size()));
  }

 private:
  static off_t At(uint32_t slot) { return static_cast<off_t>(slab::SlotOffset(slot, kPayload)); }
  const FileDescriptor fd_;
};

Bytes Mix(const Bytes& first, const Bytes& second, size_t pages_of_first) {
  Bytes mixed = second;
  std::copy_n(first.begin(), pages_of_first * slab::kPageBytes, mixed.begin());
  return mixed;
}

TEST_F(DiskFaultsTest, TornFlippedSwappedAndOlderBytesAreNeverServed) {
  const FullFile file(directory_);
  ASSERT_TRUE(Backup(kFull, 0, 1).ok());
  const Bytes older = file.Read(0);
  Drop(kFull, 0);
  ASSERT_TRUE(Backup(kFull, 0, 2).ok());
  ASSERT_TRUE(Backup(kFull, 1, 3).ok());
  const Bytes right = file.Read(0), other = file.Read(1);
  uint64_t tried = 0;
  const auto expect_lost = [&](const Bytes& damaged, const std::string& what) {
    ++tried;
    file.Write(0, damaged);
    EXPECT_EQ(Fetch(kFull, 0, 2).code(), Code::kDataLoss) << what;
    file.Write(0, right);
    ASSERT_TRUE(Fetch(kFull, 0, 2).ok());
  };
  const Bytes zeros(right.size());
  for (size_t page = 0; page <= FullFile::kPages; ++page) {
    SCOPED_TRACE(page);
    for (const Bytes* const wrong : {&older, &other, &zeros}) {
      if (page < FullFile::kPages) expect_lost(Mix(right, *wrong, page), "the end is another's");
      if (page > 0) expect_lost(Mix(*wrong, right, page), "the beginning is another's");
    }
    if (page == FullFile::kPages) break;
    // The first, a middle and the last meaningful byte of the page; the rest is padding.
    const size_t begin = page * slab::kPageBytes;
    const size_t end = page == 0 ? begin + 100 : begin + slab::kPageBytes;
    for (const size_t at : {begin, (begin + end) / 2, end - 1}) {
      if (at >= slab::kPageBytes + FullFile::kPayload) continue;
      Bytes flipped = right;
      flipped[at] ^= std::byte{4};
      expect_lost(flipped, absl::StrCat("byte ", at));
    }
    for (size_t swapped = page + 1; swapped < FullFile::kPages; ++swapped) {
      Bytes pages = right;
      std::swap_ranges(pages.begin() + static_cast<ptrdiff_t>(begin),
                       pages.begin() + static_cast<ptrdiff_t>(begin + slab::kPageBytes),
                       pages.begin() + static_cast<ptrdiff_t>(swapped * slab::kPageBytes));
      expect_lost(pages, absl::StrCat("swapped with page ", swapped));
    }
  }
  EXPECT_GE(tried, 36u);
  EXPECT_EQ(Stats(kFull).errors_of(DiskError::kBadBlock), tried);
}

// ---- D3: errors of the system ----

TEST_F(DiskFaultsTest, FailedWritesMakeAFileReadOnlyAndFailedReadsTurnItOff) {
  ASSERT_TRUE(Backup(kFull, 0, 1).ok());
  Fail(Kind::kWrite, EIO);
  const absl::Status failed = Backup(kFull, 1, 2);
  EXPECT_EQ(failed.code(), Code::kUnavailable);
  EXPECT_THAT(std::string(failed.message()), HasSubstr("slot 1 of window full"));
  Fail(Kind::kWrite, 0);
  EXPECT_EQ(Backup(kFull, 1, 2).code(), Code::kFailedPrecondition) << "the slot is quarantined";
  EXPECT_TRUE(Backup(kFull, 2, 2).ok());
  Fail(Kind::kWrite, EIO);
  EXPECT_FALSE(Backup(kFull, 3, 2).ok());
  EXPECT_FALSE(Backup(kFull, 4, 2).ok());
  Fail(Kind::kWrite, 0);
  EXPECT_EQ(Stats(kFull).file.mode, SlabMode::kReadOnly);
  EXPECT_EQ(Backup(kFull, 5, 2).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(Fetch(kFull, 0, 1).ok());
  EXPECT_EQ(Stats(kFull).errors_of(DiskError::kIo), 3u);
  EXPECT_EQ(Stats(kFull).errors_of(DiskError::kRefused), 2u);
  Fail(Kind::kRead, EIO);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Fetch(kFull, 0, 1).code(), Code::kUnavailable);
  Fail(Kind::kRead, 0);
  EXPECT_EQ(Stats(kFull).file.mode, SlabMode::kOff);
  EXPECT_THAT(Stats(kFull).file.mode_reason, HasSubstr("reads failed"));
  EXPECT_EQ(Fetch(kFull, 0, 1).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(Backup(kSliding, 0, 1).ok()) << "the other file works";
  Start();
  EXPECT_TRUE(Fetch(kFull, 0, 1).ok()) << "a new start tries again";
}

TEST_F(DiskFaultsTest, ABlockBelowAFailedBackupDoesNotReturn) {
  Fail(Kind::kWrite, EIO);
  Order parent = BackupOf(kFull, 0, 1), child = BackupOf(kFull, 1, 2);
  child.parent = SlotIndex(0);
  SlotContent content = *child.content;
  content.parent = {BlockId(1), Generation(1)};
  child.content = std::make_shared<const SlotContent>(content);
  EXPECT_FALSE(Run(parent).ok());
  Fail(Kind::kWrite, 0);
  EXPECT_EQ(Run(child).code(), Code::kNotFound);
  Start();
  EXPECT_EQ(recovered_, 0u);
}

TEST_F(DiskFaultsTest, AnEraseTakesTheOldBlockUnderABackupThatNeverTouchedItsSlot) {
  ASSERT_TRUE(Backup(kFull, 0, 1).ok());
  Drop(kFull, 0);
  Order order = BackupOf(kFull, 0, 2);  // Its record does not fit.
  order.content =
      std::make_shared<const SlotContent>(SlotContent{.tokens = std::vector<TokenId>(800)});
  const Ticket backup = order.ticket, erase(++ticket_);
  // Both in one list: when the erase is submitted, the slot belongs to the backup.
  carrier_->Submit({order,
                    {.lane = Lane::kBackup,
                     .kind = Order::Kind::kErase,
                     .ticket = erase,
                     .window_index = kFull}});
  EXPECT_EQ(Await(Lane::kBackup, backup).code(), Code::kOutOfRange);
  EXPECT_TRUE(Await(Lane::kBackup, erase).ok());
  Start();
  EXPECT_EQ(recovered_, 0u);
}

TEST_F(DiskFaultsTest, AnEraseBehindOneThatFailedTakesItsSlotsToo) {
  ASSERT_TRUE(Backup(kFull, 0, 1).ok());
  Drop(kFull, 0);
  Fail(Kind::kWrite, EIO);
  EXPECT_EQ(Erase(kFull, {}).code(), Code::kUnavailable);
  EXPECT_EQ(Stats(kFull).stale_slots, 1u);
  Fail(Kind::kWrite, 0);
  EXPECT_TRUE(Erase(kFull, {}).ok());
  Start();
  EXPECT_EQ(recovered_, 0u);
}

TEST_F(DiskFaultsTest, NoSpaceIsToldAndRefusesTheStart) {
  Fail(Kind::kWrite, ENOSPC);
  EXPECT_EQ(Backup(kFull, 0, 1).code(), Code::kResourceExhausted);
  Fail(Kind::kWrite, 0);
  EXPECT_EQ(Stats(kFull).file.mode, SlabMode::kReadOnly);
  EXPECT_EQ(Stats(kFull).errors_of(DiskError::kNoSpace), 1u);
  carrier_.reset();
  DiskFiles::Options options = files_;
  options.directory = directory_ + "/larger";
  std::filesystem::create_directory(options.directory);
  options.num_slots = {0, uint32_t{1} << 27};  // 2 TiB.
  const auto files = DiskFiles::Open(DiskCache::Layout(), options);
  EXPECT_EQ(files.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(std::string(files.status().message()), HasSubstr("cold-wfull.slab"));
}

TEST_F(DiskFaultsTest, FilesOfAnotherCacheAreForeign) {
  carrier_.reset();
  CacheSpec spec = DiskCache::Layout().spec();
  spec.model_fingerprint = "another";
  const CacheLayout other = *CacheLayout::Create(spec);
  EXPECT_EQ(DiskFiles::Open(other, files_).status().code(), Code::kFailedPrecondition);
  files_.on_foreign = SlabFile::OnForeign::kReplace;
  EXPECT_TRUE(DiskFiles::Open(other, files_).ok());
  spec.name = "../cold";
  EXPECT_EQ(DiskFiles::Open(*CacheLayout::Create(spec), files_).status().code(),
            Code::kInvalidArgument);
}

TEST_F(DiskFaultsTest, AVanishedFileIsTurnedOffAndTheCarrierLives) {
  ASSERT_TRUE(Backup(kFull, 0, 1).ok());
  std::filesystem::remove(DiskFiles::PathOf(directory_, DiskCache::Layout(), kFull));
  EXPECT_EQ(carrier_->WaitUntilIdle().code(), Code::kNotFound);
  EXPECT_EQ(Stats(kFull).file.mode, SlabMode::kOff);
  EXPECT_EQ(Backup(kFull, 1, 1).code(), Code::kFailedPrecondition);
  EXPECT_EQ(Fetch(kFull, 0, 1).code(), Code::kFailedPrecondition);
  EXPECT_EQ(Erase(kFull, {}).code(), Code::kUnavailable);
  EXPECT_TRUE(Backup(kSliding, 1, 1).ok());
}

// Requests that are stuck inside the engine itself, as on the worst of disks.
TEST_F(DiskFaultsTest, AStalledDiskDelaysItsOwnLanesAlone) {
  ASSERT_TRUE(Backup(kFull, 0, 1).ok());
  GateOf(kFull, Kind::kWrite).Close();
  const Order stuck = BackupOf(kFull, 1, 2, 2);
  carrier_->Submit({stuck});
  EXPECT_TRUE(Fetch(kFull, 0, 1).ok()) << "the fetches of the file go on";
  EXPECT_TRUE(Backup(kSliding, 0, 1).ok());
  EXPECT_TRUE(Fetch(kSliding, 0, 1).ok());
  EXPECT_FALSE(IsReported(Lane::kBackup, stuck.ticket));
  GateOf(kFull, Kind::kWrite).Open();
  EXPECT_TRUE(Await(Lane::kBackup, stuck.ticket).ok());

  GateOf(kFull, Kind::kRead).Close();
  const Order fetch = FetchOf(kFull, 0, 3);
  carrier_->Submit({fetch});
  EXPECT_TRUE(Backup(kFull, 2, 3).ok()) << "the backups of the file go on";
  EXPECT_TRUE(Fetch(kSliding, 0, 1).ok());
  EXPECT_FALSE(IsReported(Lane::kFetch, fetch.ticket));
  GateOf(kFull, Kind::kRead).Open();
  EXPECT_TRUE(Await(Lane::kFetch, fetch.ticket).ok());
}

// Slow writes leave places of the file's queue to the fetches.
TEST_F(DiskFaultsTest, BackupsLeavePlacesToFetches) {
  carrier_options_.max_running_backups = 3;
  std::atomic<int> running = 0, most = 0;
  files_.make_engine = [&](uint32_t, int fd, uint32_t depth) {
    class Slow final : public FileEngine {
     public:
      Slow(std::unique_ptr<FileEngine> engine, std::atomic<int>* running, std::atomic<int>* most)
          : engine_(std::move(engine)), running_(running), most_(most) {}
      void Submit(FileRequest request) override {
        if (request.kind == Kind::kWrite) {
          const int now = ++*running_;
          for (int seen = *most_; seen < now && !most_->compare_exchange_weak(seen, now);) {
          }
          request.done = [this, done = std::move(request.done)](int error) {
            absl::SleepFor(absl::Milliseconds(2));
            --*running_;
            done(error);
          };
        }
        engine_->Submit(std::move(request));
      }
      void Stop() override { engine_->Stop(); }
      std::string_view name() const override { return "slow"; }

     private:
      const std::unique_ptr<FileEngine> engine_;
      std::atomic<int>* const running_;
      std::atomic<int>* const most_;
    };
    return absl::StatusOr<std::unique_ptr<FileEngine>>(
        std::make_unique<Slow>(*MakeThreadEngine(fd, depth), &running, &most));
  };
  Start();
  most = 0;
  std::vector<Order> orders;
  for (uint32_t slot = 0; slot < 16; ++slot) orders.push_back(BackupOf(kFull, slot, 1));
  carrier_->Submit(orders);
  EXPECT_TRUE(carrier_->WaitUntilIdle().ok());
  EXPECT_EQ(num_reports(), 16u);
  EXPECT_GE(most.load(), 2);
  EXPECT_LE(most.load(), 3);
  carrier_.reset();
}

}  // namespace
}  // namespace pagoda

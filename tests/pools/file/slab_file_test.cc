#include "pools/file/slab_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "tests/pools/file/simulated_disk.h"
#include "tests/pools/file/slab_test_file.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kPayload = 5 * slab::kPageBytes;
constexpr uint32_t kSlots = 8;

SlabFile::Options OptionsOf(const TestFolder& folder) {
  SlabFile::Options options;
  options.path = folder.file();
  options.identity[0] = std::byte{7};
  options.num_slots = kSlots;
  options.payload_bytes = kPayload;
  options.depth = 4;
  return options;
}

std::unique_ptr<SlabFile> MustOpen(SlabFile::Options options) {
  absl::StatusOr<std::unique_ptr<SlabFile>> file = SlabFile::Open(std::move(options));
  if (!file.ok()) {
    ADD_FAILURE() << file.status();
    std::abort();
  }
  return *std::move(file);
}

// Changes the file's bytes from outside.
class Hand {
 public:
  explicit Hand(const std::string& path) : fd_(open(path.c_str(), O_RDWR | O_CLOEXEC)) {}
  ~Hand() { fsync(fd_.get()); }
  Bytes Get(uint64_t offset, size_t size) {
    Bytes bytes(size);
    EXPECT_EQ(pread(fd_.get(), bytes.data(), size, static_cast<off_t>(offset)), ssize_t(size));
    return bytes;
  }
  void Put(uint64_t offset, absl::Span<const std::byte> bytes) {
    EXPECT_EQ(pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)),
              ssize_t(bytes.size()));
  }
  Bytes Slot(uint32_t slot) {
    return Get(slab::SlotOffset(slot, kPayload), slab::StrideBytes(kPayload));
  }
  void PutSlot(uint32_t slot, const Bytes& bytes) { Put(slab::SlotOffset(slot, kPayload), bytes); }
  void Flip(uint64_t offset) {
    Bytes byte = Get(offset, 1);
    byte[0] ^= std::byte{1};
    Put(offset, byte);
  }

 private:
  FileDescriptor fd_;
};

struct Way {
  EngineKind engine;
  SlabFile::Caching caching;
  const char* folder;
};

class SlabFileWays : public ::testing::TestWithParam<Way> {
 protected:
  SlabFile::Options Options() {
    SlabFile::Options options = OptionsOf(folder_);
    options.engine = GetParam().engine;
    options.caching = GetParam().caching;
    return options;
  }
  // Whether kUring is requested although the kernel refuses it.
  bool CannotRun() {
    return GetParam().engine == EngineKind::kUring && !MakeUringEngine(0, 1).ok();
  }
  TestFolder folder_{GetParam().folder};
};

TEST_P(SlabFileWays, ReadsBackWhatWasWrittenAlsoAfterReopening) {
  if (CannotRun()) GTEST_SKIP() << "no io_uring";
  std::unique_ptr<SlabFile> file = MustOpen(Options());
  EXPECT_EQ(file->stats().engine, GetParam().engine == EngineKind::kUring ? "io_uring" : "threads");
  if (GetParam().caching == SlabFile::Caching::kBuffered) {
    EXPECT_FALSE(file->stats().direct);
  }
  struct stat info;
  ASSERT_EQ(stat(folder_.file().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_GE(uint64_t(info.st_blocks) * 512, slab::FileBytes(kSlots, kPayload)) << "reserved";
  const size_t sizes[] = {kPayload, 1, 4096, 4097, kPayload - 1, 512};
  for (uint32_t slot = 0; slot < std::size(sizes); ++slot) {
    ASSERT_TRUE(WriteBlock(*file, slot, RecordOf(slot), RandomBytes(slot, sizes[slot])).ok());
  }
  for (int opened = 0; opened < 2; ++opened) {
    for (uint32_t slot = 0; slot < std::size(sizes); ++slot) {
      const absl::StatusOr<Bytes> read = ReadBlock(*file, slot, RecordOf(slot), sizes[slot]);
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(*read, RandomBytes(slot, sizes[slot]));
    }
    EXPECT_EQ(ReadBlock(*file, 7, RecordOf(7), 1).status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(ScanAll(*file).size(), std::size(sizes));
    file.reset();
    file = MustOpen(Options());
  }
}

TEST_P(SlabFileWays, ManyThreadsAndPiecesInFlight) {
  if (CannotRun()) GTEST_SKIP() << "no io_uring";
  SlabFile::Options options = Options();
  options.num_slots = 64;
  const std::unique_ptr<SlabFile> file = MustOpen(options);
  // Three pieces of one aligned mapping. Every fourth block is shifted by 64 bytes, and is bounced.
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(4096, 64 * (kPayload + 4096)));
  const auto at = [&](uint32_t slot) {
    return memory + slot * (kPayload + 4096) + (slot % 4 == 3 ? 64 : 0);
  };
  std::atomic<int> ended = 0, failed = 0;
  const SlabFile::Done count = [&](absl::Status status) {
    ++ended;
    if (!status.ok()) ++failed;
  };
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t slot = t; slot < 64; slot += 4) {
        const Bytes bytes = RandomBytes(slot, kPayload);
        std::copy(bytes.begin(), bytes.end(), at(slot));
        file->Write(
            SlotIndex(slot), RecordOf(slot),
            {absl::MakeConstSpan(at(slot), 4096), absl::MakeConstSpan(at(slot) + 4096, 4096 * 3),
             absl::MakeConstSpan(at(slot) + 4096 * 4, 4096)},
            count);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  file->WaitUntilIdle();
  std::fill(memory, memory + 64 * (kPayload + 4096), std::byte{0});
  for (uint32_t slot = 0; slot < 64; ++slot) {
    file->Read(SlotIndex(slot), RecordOf(slot),
               {absl::MakeSpan(at(slot), 8192), absl::MakeSpan(at(slot) + 8192, kPayload - 8192)},
               count);
  }
  file->WaitUntilIdle();
  EXPECT_EQ(ended, 128);
  EXPECT_EQ(failed, 0);
  for (uint32_t slot = 0; slot < 64; ++slot) {
    const Bytes bytes = RandomBytes(slot, kPayload);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), at(slot))) << slot;
  }
  const SlabStats stats = file->stats();
  EXPECT_EQ(stats.bytes_written, 64 * kPayload);
  EXPECT_EQ(stats.bytes_read, 64 * kPayload);
  EXPECT_EQ(stats.bounced, stats.direct ? 32 : 0);
  std::free(memory);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, SlabFileWays,
    ::testing::Values(Way{EngineKind::kUring, SlabFile::Caching::kDirect, "/var/tmp"},
                      Way{EngineKind::kThreads, SlabFile::Caching::kDirect, "/var/tmp"},
                      Way{EngineKind::kUring, SlabFile::Caching::kBuffered, "/var/tmp"},
                      Way{EngineKind::kThreads, SlabFile::Caching::kBuffered, "/dev/shm"}),
    [](const ::testing::TestParamInfo<Way>& way) {
      return absl::StrCat(way.param.engine == EngineKind::kUring ? "Uring" : "Threads",
                          way.param.caching == SlabFile::Caching::kDirect ? "Direct" : "Buffered");
    });

// ---- Torn, flipped, swapped and outdated bytes are never served ----

class SlabDamage : public ::testing::Test {
 protected:
  SlabDamage() {
    EXPECT_TRUE(WriteBlock(*file_, 0, RecordOf(1), old_).ok());
    old_slot_ = Hand(folder_.file()).Slot(0);
    EXPECT_TRUE(WriteBlock(*file_, 0, RecordOf(2), new_).ok());
    new_slot_ = Hand(folder_.file()).Slot(0);
    EXPECT_TRUE(WriteBlock(*file_, 1, RecordOf(3), other_).ok());
    other_slot_ = Hand(folder_.file()).Slot(1);
  }
  static SlabFile::Options Buffered(const TestFolder& folder) {
    SlabFile::Options options = OptionsOf(folder);
    options.caching = SlabFile::Caching::kBuffered;
    return options;
  }
  // Slot 0 holds these bytes. No record may get a block from it.
  void ExpectNothing(const Bytes& slot, const std::string& what) {
    Hand(folder_.file()).PutSlot(0, slot);
    for (uint64_t block : {1, 2, 3}) {
      EXPECT_FALSE(ReadBlock(*file_, 0, RecordOf(block), kPayload).ok()) << what << " as " << block;
    }
  }

  TestFolder folder_{"/dev/shm"};
  std::unique_ptr<SlabFile> file_ = MustOpen(Buffered(folder_));
  const Bytes old_ = RandomBytes(1, kPayload);
  const Bytes new_ = RandomBytes(2, kPayload);
  const Bytes other_ = RandomBytes(3, kPayload);
  Bytes old_slot_, new_slot_, other_slot_;
};

TEST_F(SlabDamage, TornWritesAreNotServed) {
  const size_t pages = new_slot_.size() / slab::kPageBytes;
  // Every set of pages that reached the disk, except none and all of them.
  for (uint32_t reached = 1; reached + 1 < 1u << pages; ++reached) {
    Bytes torn = old_slot_;
    for (size_t page = 0; page < pages; ++page) {
      if ((reached >> page & 1) == 0) continue;
      const auto from = new_slot_.begin() + static_cast<ptrdiff_t>(page * slab::kPageBytes);
      std::copy(from, from + slab::kPageBytes,
                torn.begin() + static_cast<ptrdiff_t>(page * slab::kPageBytes));
    }
    ExpectNothing(torn, absl::StrCat("pages ", reached));
  }
  Hand(folder_.file()).PutSlot(0, new_slot_);
  EXPECT_TRUE(ReadBlock(*file_, 0, RecordOf(2), kPayload).ok()) << "whole";
}

TEST_F(SlabDamage, FlippedBitsAreNotServed) {
  for (size_t boundary = 0; boundary <= new_slot_.size(); boundary += slab::kPageBytes) {
    for (const size_t at : {boundary - 1, boundary, boundary + 40, boundary + 2000}) {
      if (at >= new_slot_.size()) continue;
      Bytes flipped = new_slot_;
      flipped[at] ^= std::byte{16};
      ExpectNothing(flipped, absl::StrCat("byte ", at));
    }
  }
}

TEST_F(SlabDamage, SwappedPagesAndSlotsAreNotServed) {
  const auto page = [](Bytes& slot, size_t i) {
    return slot.begin() + static_cast<ptrdiff_t>(i * slab::kPageBytes);
  };
  const size_t pages = new_slot_.size() / slab::kPageBytes;
  for (size_t i = 0; i < pages; ++i) {
    Bytes mixed = new_slot_;
    std::copy(page(other_slot_, i), page(other_slot_, i) + slab::kPageBytes, page(mixed, i));
    ExpectNothing(mixed, absl::StrCat("page of another slot ", i));
    for (size_t j = i + 1; j < pages; ++j) {
      mixed = new_slot_;
      std::swap_ranges(page(mixed, i), page(mixed, i) + slab::kPageBytes, page(mixed, j));
      ExpectNothing(mixed, absl::StrCat("pages ", i, " and ", j));
    }
  }
  ExpectNothing(other_slot_, "another slot in whole");
}

TEST_F(SlabDamage, AnOldBlockIsNotServedAsTheNewOne) {
  Hand(folder_.file()).PutSlot(0, old_slot_);
  EXPECT_EQ(ReadBlock(*file_, 0, RecordOf(2), kPayload).status().code(),
            absl::StatusCode::kDataLoss);
  Hand(folder_.file()).PutSlot(0, new_slot_);
  EXPECT_EQ(ReadBlock(*file_, 0, RecordOf(2), kPayload - 1).status().code(),
            absl::StatusCode::kDataLoss)
      << "another length";
  EXPECT_EQ(file_->stats().bad_blocks, 2u);
  EXPECT_EQ(file_->stats().mode, SlabMode::kReadWrite);
  ASSERT_TRUE(file_->Reset().ok());
  Hand(folder_.file()).PutSlot(0, new_slot_);
  EXPECT_EQ(ReadBlock(*file_, 0, RecordOf(2), kPayload).status().code(),
            absl::StatusCode::kNotFound)
      << "from before the reset";
}

TEST_F(SlabDamage, ABlockIsNamedByTheFirstBytesOfItsRecord) {
  const Bytes record = RandomBytes(9, slab::kMaxRecordBytes);
  ASSERT_TRUE(WriteBlock(*file_, 2, record, new_).ok());
  Bytes longer = record;
  longer.push_back(std::byte{0});  // The page has a zero there too.
  const auto read = [&](size_t first, size_t last) {
    const Bytes prefix(longer.begin() + static_cast<ptrdiff_t>(first),
                       longer.begin() + static_cast<ptrdiff_t>(last));
    return ReadBlock(*file_, 2, prefix, kPayload).status().code();
  };
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{16}, record.size() - 1, record.size()}) {
    EXPECT_EQ(read(0, bytes), absl::StatusCode::kOk) << bytes;
  }
  EXPECT_EQ(read(1, 16), absl::StatusCode::kDataLoss) << "it is not the beginning";
  EXPECT_EQ(read(0, longer.size()), absl::StatusCode::kDataLoss) << "longer than the record";
  for (const size_t at : {size_t{0}, size_t{15}}) {
    Bytes other(record.begin(), record.begin() + 16);
    other[at] ^= std::byte{1};
    EXPECT_EQ(ReadBlock(*file_, 2, other, kPayload).status().code(), absl::StatusCode::kDataLoss);
  }
  // The header's checksum covers the rest of the record too.
  Hand(folder_.file()).Flip(slab::SlotOffset(2, kPayload) + 72 + 1000);
  EXPECT_EQ(read(0, 16), absl::StatusCode::kDataLoss);
}

TEST_F(SlabDamage, ScanTellsWhatTheSlotsHold) {
  Bytes damaged = new_slot_;
  damaged[100] ^= std::byte{1};
  Hand(folder_.file()).PutSlot(0, damaged);
  Hand(folder_.file()).PutSlot(2, other_slot_);
  SlabFile::ScanResult counts;
  EXPECT_THAT(ScanAll(*file_, &counts), ::testing::ElementsAre(std::pair(1u, RecordOf(3))));
  EXPECT_EQ(counts.blocks, 1u);
  EXPECT_EQ(counts.damaged, 2u);
  EXPECT_EQ(counts.empty, kSlots - 3);
  ASSERT_TRUE(file_->Reset().ok());
  EXPECT_TRUE(ScanAll(*file_, &counts).empty());
  EXPECT_EQ(counts.outdated, 2u);
}

// ---- Refusals at the start ----

TEST(SlabFileTest, RefusesAnotherIdentityShapeOrFormatUnlessItReplaces) {
  const TestFolder folder("/dev/shm");
  ASSERT_TRUE(WriteBlock(*MustOpen(OptionsOf(folder)), 0, RecordOf(1), RandomBytes(1, 100)).ok());
  SlabFile::Options other = OptionsOf(folder);
  other.identity[31] = std::byte{1};
  EXPECT_THAT(std::string(SlabFile::Open(other).status().message()), HasSubstr("another identity"));
  SlabFile::Options larger = OptionsOf(folder);
  larger.num_slots = kSlots + 1;
  EXPECT_THAT(std::string(SlabFile::Open(larger).status().message()), HasSubstr("8 slots"));
  // A refused file is untouched.
  EXPECT_TRUE(ReadBlock(*MustOpen(OptionsOf(folder)), 0, RecordOf(1), 100).ok());
  other.on_foreign = SlabFile::OnForeign::kReplace;
  EXPECT_TRUE(ScanAll(*MustOpen(other)).empty());
  EXPECT_EQ(SlabFile::Open(OptionsOf(folder)).status().code(),
            absl::StatusCode::kFailedPrecondition);
  // A file of another program.
  std::ofstream(folder.file()) << std::string(20000, 'x');
  EXPECT_THAT(std::string(SlabFile::Open(OptionsOf(folder)).status().message()),
              HasSubstr("no slab file"));
}

TEST(SlabFileTest, ABlockOfTheReplacedFileDoesNotReturn) {
  const TestFolder folder("/dev/shm");
  ASSERT_TRUE(WriteBlock(*MustOpen(OptionsOf(folder)), 0, RecordOf(1), RandomBytes(1, 100)).ok());
  const Bytes slot = Hand(folder.file()).Slot(0);
  SlabFile::Options other = OptionsOf(folder);
  other.identity[31] = std::byte{1};
  other.on_foreign = SlabFile::OnForeign::kReplace;
  const std::unique_ptr<SlabFile> file = MustOpen(other);
  Hand(folder.file()).PutSlot(0, slot);
  EXPECT_EQ(ReadBlock(*file, 0, RecordOf(1), 100).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(ScanAll(*file).empty());
}

TEST(SlabFileTest, OneDamagedSuperblockIsSurvivedAndTwoAreRefused) {
  const TestFolder folder("/dev/shm");
  ASSERT_TRUE(WriteBlock(*MustOpen(OptionsOf(folder)), 0, RecordOf(1), RandomBytes(1, 100)).ok());
  for (uint64_t superblock : {0, 1}) {
    Hand(folder.file()).Flip(superblock * slab::kPageBytes + 50);
    EXPECT_TRUE(ReadBlock(*MustOpen(OptionsOf(folder)), 0, RecordOf(1), 100).ok()) << superblock;
  }
  Hand(folder.file()).Flip(50);
  Hand(folder.file()).Flip(slab::kPageBytes + 50);
  EXPECT_THAT(std::string(SlabFile::Open(OptionsOf(folder)).status().message()),
              HasSubstr("damaged"));
}

TEST(SlabFileTest, RefusesASecondOwner) {
  const TestFolder folder("/dev/shm");
  std::unique_ptr<SlabFile> file = MustOpen(OptionsOf(folder));
  SlabFile::Options second = OptionsOf(folder);
  second.lock_patience = absl::Milliseconds(20);
  EXPECT_THAT(std::string(SlabFile::Open(second).status().message()), HasSubstr("in use"));
  file.reset();
  EXPECT_TRUE(SlabFile::Open(OptionsOf(folder)).ok());
}

TEST(SlabFileTest, RefusesWhatOthersMayWriteAndSymbolicLinks) {
  const TestFolder folder("/dev/shm");
  MustOpen(OptionsOf(folder)).reset();
  ASSERT_EQ(chmod(folder.file().c_str(), 0620), 0);
  EXPECT_EQ(SlabFile::Open(OptionsOf(folder)).status().code(), absl::StatusCode::kPermissionDenied);
  SlabFile::Options link = OptionsOf(folder);
  link.path = folder.file() + "-link";
  ASSERT_EQ(symlink(folder.file().c_str(), link.path.c_str()), 0);
  EXPECT_FALSE(SlabFile::Open(link).ok());
}

TEST(SlabFileTest, OtherUsersLoseTheRightToReadIt) {
  const TestFolder folder("/dev/shm");
  MustOpen(OptionsOf(folder)).reset();
  ASSERT_EQ(chmod(folder.file().c_str(), 0644), 0);
  MustOpen(OptionsOf(folder)).reset();
  struct stat info;
  ASSERT_EQ(stat(folder.file().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
}

TEST(SlabFileTest, AFileWithASecondNameIsRefusedAndUntouched) {
  const TestFolder folder("/dev/shm");
  const std::string other = folder.file() + "-of-another-program";
  const std::string text(20000, 'x');
  std::ofstream(other) << text;
  ASSERT_EQ(chmod(other.c_str(), 0644), 0);
  ASSERT_EQ(link(other.c_str(), folder.file().c_str()), 0);
  SlabFile::Options options = OptionsOf(folder);
  options.on_foreign = SlabFile::OnForeign::kReplace;
  const absl::Status status = SlabFile::Open(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()), HasSubstr("2 names"));
  std::ifstream in(other);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), text);
  struct stat info;
  ASSERT_EQ(stat(other.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0644u);
}

TEST(SlabFileTest, AFolderThatEveryUserMayWriteIsRefusedUnlessItIsSticky) {
  const TestFolder folder("/dev/shm");
  const std::string parent = folder.file().substr(0, folder.file().rfind('/'));
  ASSERT_EQ(chmod(parent.c_str(), 0777), 0);
  const absl::Status status = SlabFile::Open(OptionsOf(folder)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()), HasSubstr("chmod o-w '" + parent + "'"));
  EXPECT_NE(access(folder.file().c_str(), F_OK), 0);
  ASSERT_EQ(chmod(parent.c_str(), 01777), 0);
  EXPECT_TRUE(SlabFile::Open(OptionsOf(folder)).ok());
}

TEST(SlabFileTest, ACutFileAndALongerOneAreRefusedOrReplaced) {
  const TestFolder folder("/dev/shm");
  const uint64_t whole_bytes = slab::FileBytes(kSlots, kPayload);
  for (const uint64_t bytes : {slab::kPageBytes, 2 * slab::kPageBytes, whole_bytes - 1,
                               whole_bytes + 1, 2 * whole_bytes}) {
    ASSERT_TRUE(WriteBlock(*MustOpen(OptionsOf(folder)), 0, RecordOf(1), RandomBytes(1, 100)).ok());
    ASSERT_EQ(truncate(folder.file().c_str(), static_cast<off_t>(bytes)), 0);
    const absl::Status status = SlabFile::Open(OptionsOf(folder)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("has ", bytes, " bytes instead of ", whole_bytes)));
    SlabFile::Options replacing = OptionsOf(folder);
    replacing.on_foreign = SlabFile::OnForeign::kReplace;
    EXPECT_TRUE(ScanAll(*MustOpen(replacing)).empty());
  }
}

// It is as a file whose making a crash has cut, so Open must not refuse it.
TEST(SlabFileTest, AnEmptiedFileBeginsAsANewOneAndSaysSo) {
  const TestFolder folder("/dev/shm");
  EXPECT_FALSE(MustOpen(OptionsOf(folder))->stats().found_empty);
  EXPECT_FALSE(MustOpen(OptionsOf(folder))->stats().found_empty);
  for (const uint64_t bytes : {uint64_t{0}, slab::FileBytes(kSlots, kPayload)}) {
    ASSERT_EQ(truncate(folder.file().c_str(), 0), 0);
    ASSERT_EQ(truncate(folder.file().c_str(), static_cast<off_t>(bytes)), 0);
    const auto file = MustOpen(OptionsOf(folder));
    EXPECT_TRUE(file->stats().found_empty) << bytes;
    EXPECT_TRUE(ScanAll(*file).empty());
  }
}

TEST(SlabFileTest, AFullFileSystemRefusesTheStart) {
  const TestFolder folder("/dev/shm");
  SlabFile::Options options = OptionsOf(folder);
  options.payload_bytes = uint64_t{1} << 40;
  EXPECT_EQ(SlabFile::Open(options).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(SlabFileTest, NothingIsAllocatedForSlotsThatHaveNoSpace) {
  const TestFolder folder("/dev/shm");
  SlabFile::Options options = OptionsOf(folder);
  options.num_slots = UINT32_MAX;
  options.payload_bytes = 1;
  rusage before, after;
  ASSERT_EQ(getrusage(RUSAGE_SELF, &before), 0);
  EXPECT_EQ(SlabFile::Open(options).status().code(), absl::StatusCode::kResourceExhausted);
  ASSERT_EQ(getrusage(RUSAGE_SELF, &after), 0);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 1 << 20) << "KiB";
  options.payload_bytes = uint64_t{1} << 31;
  EXPECT_EQ(SlabFile::Open(options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SlabFileTest, AFileThatIsRemovedWhileItsLockIsAwaitedIsNotUsed) {
  const TestFolder folder("/dev/shm");
  std::unique_ptr<SlabFile> first = MustOpen(OptionsOf(folder));
  std::unique_ptr<SlabFile> second;
  std::thread opener([&] { second = MustOpen(OptionsOf(folder)); });
  usleep(50000);
  ASSERT_EQ(unlink(folder.file().c_str()), 0);
  first.reset();
  opener.join();
  EXPECT_TRUE(second->Sync().ok()) << "the path names the file that is used";
}

// On a non-blocking file, io_uring ends a request that would block with EAGAIN.
TEST(SlabFileTest, TheEngineGetsABlockingFile) {
  const TestFolder folder("/var/tmp");
  SlabFile::Options options = OptionsOf(folder);
  int flags = -1;
  options.make_engine = [&](int fd, uint32_t depth) {
    flags = fcntl(fd, F_GETFL);
    return MakeFileEngine(EngineKind::kAuto, fd, depth);
  };
  MustOpen(options);
  ASSERT_GE(flags, 0);
  EXPECT_EQ(flags & O_NONBLOCK, 0);
}

// Also if only its size distinguishes it from a file whose creation was interrupted.
TEST(SlabFileTest, ASmallForeignFileIsRefusedOrReplaced) {
  for (const size_t size : {1, 100, 4095, 4096, 5000, 8191, 10000}) {
    const TestFolder folder("/var/tmp");
    std::ofstream(folder.file()) << std::string(size, 'x');
    EXPECT_THAT(std::string(SlabFile::Open(OptionsOf(folder)).status().message()),
                HasSubstr("no slab file"))
        << size;
    EXPECT_EQ(std::filesystem::file_size(folder.file()), size);
    SlabFile::Options options = OptionsOf(folder);
    options.on_foreign = SlabFile::OnForeign::kReplace;
    EXPECT_TRUE(ScanAll(*MustOpen(options)).empty()) << size;
  }
}

TEST(SlabFileTest, EraseAndResetHoldAfterReopening) {
  const TestFolder folder("/dev/shm");
  std::unique_ptr<SlabFile> file = MustOpen(OptionsOf(folder));
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    ASSERT_TRUE(WriteBlock(*file, slot, RecordOf(slot), RandomBytes(slot, kPayload)).ok());
  }
  ASSERT_TRUE(file->Erase({SlotIndex(0), SlotIndex(1), SlotIndex(5)}).ok());
  EXPECT_EQ(ReadBlock(*file, 0, RecordOf(0), kPayload).status().code(),
            absl::StatusCode::kNotFound);
  file.reset();
  file = MustOpen(OptionsOf(folder));
  EXPECT_EQ(ScanAll(*file).size(), kSlots - 3);
  ASSERT_TRUE(file->Reset().ok());
  ASSERT_TRUE(WriteBlock(*file, 3, RecordOf(9), RandomBytes(9, 10)).ok());
  file.reset();
  file = MustOpen(OptionsOf(folder));
  EXPECT_THAT(ScanAll(*file), ::testing::ElementsAre(std::pair(3u, RecordOf(9))));
  EXPECT_EQ(file->stats().generation, 2u);
}

}  // namespace
}  // namespace pagoda

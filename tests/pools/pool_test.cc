#include "pools/pool.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda {
namespace {

// A name that only this test process uses.
std::string Name(const std::string& what) {
  return absl::StrCat("/pagoda-test-", getpid(), "-", what);
}

CacheLayout TwoPools() {
  return *CacheLayout::Create(
      {.tokens_per_block = 4,
       .layers = {{.num_kv_heads = 2, .head_dim = 8}, {.num_kv_heads = 1, .head_dim = 8}}});
}

TEST(PoolTest, AnotherMappingSeesTheBytesOfASlot) {
  auto pools = PoolSet::Create(TwoPools(), {.tiers = {{3}}}, absl::StrCat("test-", getpid()));
  ASSERT_TRUE(pools.ok()) << pools.status();
  const std::vector<PoolMapping> mappings = (*pools)->Mappings();
  ASSERT_EQ(mappings.size(), 2u);

  SharedMemoryPool& pool = (*pools)->pool(0, 1);
  const absl::Span<std::byte> slot = pool.slot(SlotIndex{2});
  EXPECT_EQ(slot.size(), 1 * 2 * 1 * 4 * 8 * sizeof(float));
  std::memset(slot.data(), 0x5a, slot.size());

  auto mapped = MappedPool::Open(mappings[1]);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  const absl::Span<std::byte> bytes = (*mapped)->bytes();
  ASSERT_EQ(bytes.size(), 3 * slot.size());
  EXPECT_EQ(bytes[2 * slot.size() - 1], std::byte{0});  // Slot 1 has its initial content.
  EXPECT_EQ(bytes[2 * slot.size()], std::byte{0x5a});
  EXPECT_EQ(bytes[3 * slot.size() - 1], std::byte{0x5a});
}

TEST(PoolTest, BothTiersAreMappedUnderNamesOfTheirOwn) {
  const auto layout = CacheLayout::Create(
      {.tokens_per_block = 4,
       .layers = {{.num_kv_heads = 2, .head_dim = 8},
                  {.num_kv_heads = 1, .head_dim = 8},
                  {.window = WindowSize(16), .num_kv_heads = 1, .head_dim = 8}}});
  const std::string instance = absl::StrCat("test-", getpid(), "-tiers");
  auto pools = PoolSet::Create(*layout, {.tiers = {{3, 5}, {0, 2}}}, instance);
  ASSERT_TRUE(pools.ok()) << pools.status();
  EXPECT_EQ((*pools)->num_slots(0, kPrimaryTier), 3u);
  EXPECT_EQ((*pools)->num_slots(1, kPrimaryTier), 5u);
  EXPECT_EQ((*pools)->num_slots(0, Tier(1)), 0u);
  EXPECT_EQ((*pools)->num_slots(1, Tier(1)), 2u);

  std::string seen;
  for (const PoolMapping& mapping : (*pools)->Mappings()) {
    absl::StrAppend(&seen, WindowName(mapping.window), " ", mapping.pool_index, " ",
                    mapping.tier == kPrimaryTier ? "primary" : "secondary", " ", mapping.num_slots,
                    " ", mapping.segments[0].shm_name, "\n");
  }
  EXPECT_EQ(seen, absl::StrCat("16 0 primary 3 /pagoda-", instance, "-w16-p0\n",      //
                               "full 0 primary 5 /pagoda-", instance, "-wfull-p0\n",  //
                               "full 1 primary 5 /pagoda-", instance, "-wfull-p1\n",  //
                               "full 0 secondary 2 /pagoda-", instance, "-wfull-p0-secondary\n",
                               "full 1 secondary 2 /pagoda-", instance, "-wfull-p1-secondary\n"));

  SharedMemoryPool& lower = (*pools)->pool(1, 1, Tier(1));
  std::memset(lower.slot(SlotIndex{1}).data(), 0x77, lower.slot(SlotIndex{1}).size());
  auto mapped = MappedPool::Open((*pools)->Mappings()[4]);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_EQ((*mapped)->slot(SlotIndex{1})[0], std::byte{0x77});
  EXPECT_EQ((*mapped)->slot(SlotIndex{0})[0], std::byte{0});
  EXPECT_EQ((*pools)->pool(1, 1).slot(SlotIndex{1})[0], std::byte{0});
}

TEST(PoolTest, FreeSharedMemoryIsPartOfItsFileSystem) {
  struct statvfs fs;
  ASSERT_EQ(statvfs("/dev/shm", &fs), 0);
  const auto free_bytes = FreeSharedMemoryBytes();
  ASSERT_TRUE(free_bytes.ok()) << free_bytes.status();
  EXPECT_GT(*free_bytes, 0u);
  EXPECT_LE(*free_bytes, uint64_t{fs.f_blocks} * fs.f_frsize);
}

TEST(PoolTest, TheNameGoesWithThePool) {
  const std::string name = Name("gone");
  { ASSERT_TRUE(SharedMemory::Create(name, 4096).ok()); }
  EXPECT_EQ(SharedMemory::Open(name).status().code(), absl::StatusCode::kNotFound);
}

TEST(PoolTest, ANameInUseIsRefused) {
  const std::string name = Name("used");
  auto first = SharedMemory::Create(name, 4096);
  ASSERT_TRUE(first.ok());
  const auto second = SharedMemory::Create(name, 4096);
  EXPECT_EQ(ReasonOf(second.status()), Reason::kInvalidArgument);
  EXPECT_TRUE(SharedMemory::Open(name).ok()) << "the refusal left the owner's memory alone";
}

TEST(PoolTest, ANameLeftByADeadProcessIsTakenOver) {
  const std::string name = Name("left");
  const pid_t child = fork();
  if (child == 0) {
    auto memory = SharedMemory::Create(name, 4096);
    if (memory.ok()) memory->bytes()[0] = std::byte{7};
    _exit(memory.ok() ? 0 : 1);  // Ends without destructors, like kill -9.
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  auto memory = SharedMemory::Create(name, 4096);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->bytes()[0], std::byte{0}) << "new memory starts as zeros";
}

// Ends the process at once, without destructors.
[[noreturn]] void Die() {
  raise(SIGKILL);
  std::abort();
}

// Runs `body` in a separate process. It ends with Die() if all is well.
void InAProcessThatDies(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
}

TEST(SharedMemoryTest, ADeadOwnersBytesAreAdoptedInPlace) {
  const std::string name = Name("adopted");
  InAProcessThatDies([&] {
    auto memory = SharedMemory::CreateOrAdopt(name, 8192);
    if (!memory.ok() || memory->adopted()) return;
    memory->bytes()[5000] = std::byte{7};
    Die();
  });
  auto old_client = SharedMemory::Open(name);
  ASSERT_TRUE(old_client.ok()) << old_client.status();
  auto memory = SharedMemory::CreateOrAdopt(name, 8192);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_TRUE(memory->adopted());
  EXPECT_EQ(memory->bytes()[5000], std::byte{7});
  old_client->bytes()[1] = std::byte{9};
  EXPECT_EQ(memory->bytes()[1], std::byte{9}) << "they map the same object";
  shm_unlink(name.c_str());
}

TEST(SharedMemoryTest, AnotherSizeIsNotAdopted) {
  const std::string name = Name("other-size");
  InAProcessThatDies([&] {
    auto memory = SharedMemory::Create(name, 8192);
    if (!memory.ok()) return;
    memory->bytes()[0] = std::byte{7};
    Die();
  });
  auto memory = SharedMemory::CreateOrAdopt(name, 4096);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_FALSE(memory->adopted());
  EXPECT_EQ(memory->bytes().size(), 4096u);
  EXPECT_EQ(memory->bytes()[0], std::byte{0});
}

TEST(SharedMemoryTest, ALivingOwnersMemoryIsNotAdopted) {
  const std::string name = Name("living");
  auto owner = SharedMemory::CreateOrAdopt(name, 4096);
  ASSERT_TRUE(owner.ok()) << owner.status();
  EXPECT_EQ(ReasonOf(SharedMemory::CreateOrAdopt(name, 4096).status()), Reason::kInvalidArgument);
  EXPECT_EQ(ReasonOf(SharedMemory::RemoveLeftover(name)), Reason::kInvalidArgument);
  EXPECT_TRUE(SharedMemory::Open(name).ok()) << "the refusals left the owner's memory alone";
}

TEST(SharedMemoryTest, AKeptNameOutlivesItsOwner) {
  const std::string name = Name("kept");
  {
    auto memory = SharedMemory::Create(name, 4096);
    ASSERT_TRUE(memory.ok()) << memory.status();
    memory->bytes()[0] = std::byte{7};
    memory->KeepName();
  }
  {
    auto memory = SharedMemory::CreateOrAdopt(name, 4096);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_TRUE(memory->adopted());
    EXPECT_EQ(memory->bytes()[0], std::byte{7});
  }
  EXPECT_TRUE(SharedMemory::Open(name).ok()) << "what was found stays";
  EXPECT_TRUE(SharedMemory::RemoveLeftover(name).ok());
  { EXPECT_FALSE(SharedMemory::CreateOrAdopt(name, 4096)->adopted()); }
  EXPECT_EQ(SharedMemory::Open(name).status().code(), absl::StatusCode::kNotFound)
      << "what was made goes";
}

TEST(SharedMemoryTest, ALeftoverIsRemovedUnlessItFits) {
  const std::string name = Name("leftover");
  InAProcessThatDies([&] {
    const auto memory = SharedMemory::Create(name, 4096);
    if (memory.ok()) Die();
  });
  EXPECT_TRUE(SharedMemory::RemoveLeftover(name, 4096).ok());
  EXPECT_TRUE(SharedMemory::Open(name).ok());
  EXPECT_TRUE(SharedMemory::RemoveLeftover(name, 8192).ok());
  EXPECT_EQ(SharedMemory::Open(name).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(SharedMemory::RemoveLeftover(name).ok()) << "there is none any more";
}

// The descriptor is closed; only the mapping is left.
TEST(SharedMemoryTest, AnotherProcessThatMapsItIsSeenUntilItsEnd) {
  const std::string name = Name("users");
  auto memory = SharedMemory::Create(name, 4096);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_FALSE(memory->HasOtherUsers());
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const int fd = shm_open(name.c_str(), O_RDWR, 0);
    const void* data = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (data == MAP_FAILED || write(ready[1], "x", 1) != 1) _exit(1);
    pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_TRUE(memory->HasOtherUsers());
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(memory->HasOtherUsers());
  close(ready[0]);
  close(ready[1]);
}

TEST(PoolTest, KeptPoolsFindTheirBytesAgainAfterAnEndAndAKill) {
  const std::string instance = absl::StrCat("test-", getpid(), "-kept");
  const SlotCounts slots = {.tiers = {{3}, {2}}};
  InAProcessThatDies([&] {
    auto pools = PoolSet::Create(TwoPools(), slots, instance, MemoryLifetime::kKept);
    if (!pools.ok() || (*pools)->adopted(0, kPrimaryTier)) return;
    (*pools)->pool(0, 1).bytes()[3] = std::byte{7};
    Die();
  });
  for (const bool again : {false, true}) {
    SCOPED_TRACE(again ? "after an end" : "after a kill");
    auto pools = PoolSet::Create(TwoPools(), slots, instance, MemoryLifetime::kKept);
    ASSERT_TRUE(pools.ok()) << pools.status();
    EXPECT_TRUE((*pools)->adopted(0, kPrimaryTier));
    EXPECT_TRUE((*pools)->adopted(0, Tier(1)));
    EXPECT_EQ((*pools)->pool(0, 1).bytes()[3], std::byte{7});
  }
  ASSERT_TRUE(SharedMemory::RemoveLeftover(absl::StrCat("/pagoda-", instance, "-wfull-p0")).ok());
  {
    auto pools = PoolSet::Create(TwoPools(), slots, instance, MemoryLifetime::kKept);
    ASSERT_TRUE(pools.ok()) << pools.status();
    EXPECT_FALSE((*pools)->adopted(0, kPrimaryTier)) << "one of its pools is new";
    EXPECT_TRUE((*pools)->adopted(0, Tier(1)));
  }
  auto pools = PoolSet::Create(TwoPools(), slots, instance);
  ASSERT_TRUE(pools.ok()) << pools.status();
  EXPECT_FALSE((*pools)->adopted(0, Tier(1))) << "not kept: new memory";
  EXPECT_EQ((*pools)->pool(0, 1).bytes()[3], std::byte{0});
}

TEST(PoolTest, PoolsThatCannotAllBeMadeLeaveWhatWasFoundAndNothingElse) {
  const std::string instance = absl::StrCat("test-", getpid(), "-some");
  const std::string found = absl::StrCat("/pagoda-", instance, "-wfull-p0");
  constexpr uint32_t kTooMany = 1u << 31;
  {
    auto pools = PoolSet::Create(TwoPools(), {.tiers = {{3}}}, instance, MemoryLifetime::kKept);
    ASSERT_TRUE(pools.ok()) << pools.status();
    (*pools)->KeepNames();
  }
  ASSERT_TRUE(SharedMemory::RemoveLeftover(absl::StrCat("/pagoda-", instance, "-wfull-p1")).ok());
  const SlotCounts slots = {.tiers = {{3}, {kTooMany}}};
  const auto failed = PoolSet::Create(TwoPools(), slots, instance, MemoryLifetime::kKept);
  EXPECT_EQ(ReasonOf(failed.status()), Reason::kOutOfMemory) << failed.status();
  EXPECT_TRUE(SharedMemory::Open(found).ok());
  EXPECT_FALSE(SharedMemory::Open(absl::StrCat("/pagoda-", instance, "-wfull-p1")).ok());
  {
    auto pools = PoolSet::Create(TwoPools(), {.tiers = {{3}}}, instance, MemoryLifetime::kKept);
    ASSERT_TRUE(pools.ok()) << pools.status();
  }
  EXPECT_TRUE(SharedMemory::Open(found).ok()) << "it was found, and stays without KeepNames";
  EXPECT_FALSE(SharedMemory::Open(absl::StrCat("/pagoda-", instance, "-wfull-p1")).ok());
  EXPECT_TRUE(PoolSet::RemoveLeftovers(TwoPools(), instance).ok());
}

TEST(PoolTest, MoreThanThereIsIsAnErrorThatSaysHowMuch) {
  const auto memory = SharedMemory::Create(Name("huge"), uint64_t{1} << 50);
  EXPECT_EQ(ReasonOf(memory.status()), Reason::kOutOfMemory);
  EXPECT_NE(memory.status().message().find("are free"), absl::string_view::npos) << memory.status();
  EXPECT_EQ(SharedMemory::Open(Name("huge")).status().code(), absl::StatusCode::kNotFound);
}

TEST(PoolTest, ASizeThatDoesNotFit64BitsIsRefused) {
  const auto layout = CacheLayout::Create(
      {.tokens_per_block = 1024,
       .layers = std::vector(4096, LayerSpec{.num_kv_heads = 1024, .head_dim = 1024})});
  ASSERT_TRUE(layout.ok());
  const auto pool = SharedMemoryPool::Create({.shm_name = Name("wrap"),
                                              .layout = layout->windows()[0].pools[0],
                                              .num_slots = 2'000'000'000});
  EXPECT_EQ(ReasonOf(pool.status()), Reason::kInvalidArgument) << pool.status();
}

TEST(PoolTest, ADescriptorMapsThePoolInAnotherPlace) {
  auto pools = PoolSet::Create(TwoPools(), {.tiers = {{3}, {2}}}, absl::StrCat("test-", getpid()));
  ASSERT_TRUE(pools.ok()) << pools.status();
  const std::vector<PoolMapping> mappings = (*pools)->Mappings();
  auto descriptors = (*pools)->OpenDescriptors(MemoryAccess::kReadWrite);
  ASSERT_TRUE(descriptors.ok()) << descriptors.status();
  ASSERT_EQ(descriptors->size(), mappings.size());
  for (size_t i = 0; i < mappings.size(); ++i) {
    std::vector<FileDescriptor> segments;
    segments.push_back(std::move((*descriptors)[i]));
    auto mapped =
        MappedPool::FromDescriptors(mappings[i], std::move(segments), MemoryAccess::kReadWrite);
    ASSERT_TRUE(mapped.ok()) << mapped.status();
    (*mapped)->slot(SlotIndex{1})[0] = std::byte(i + 1);
    SharedMemoryPool& pool = (*pools)->pool(0, mappings[i].pool_index, mappings[i].tier);
    EXPECT_EQ(pool.slot(SlotIndex{1})[0], std::byte(i + 1));
  }
}

TEST(PoolTest, ADescriptorForReadingIsNoneForWriting) {
  const auto memory = SharedMemory::Create(Name("read"), 4096);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const auto open = [&](MemoryAccess access) { return memory->OpenDescriptor(access).value(); };
  memory->bytes()[7] = std::byte{3};
  auto reader = SharedMemory::FromDescriptor(open(MemoryAccess::kRead), MemoryAccess::kRead);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->bytes()[7], std::byte{3});
  auto refused = SharedMemory::FromDescriptor(open(MemoryAccess::kRead), MemoryAccess::kReadWrite);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_DEATH(reader->bytes()[7] = std::byte{4}, "");
}

TEST(SharedMemoryTest, AReaderThatLocksItDoesNotKeepTheNextOwnerOut) {
  const std::string name = Name("lock");
  FileDescriptor handed_out;
  {
    auto memory = SharedMemory::Create(name, 4096);
    ASSERT_TRUE(memory.ok()) << memory.status();
    handed_out = memory->OpenDescriptor(MemoryAccess::kRead).value();
    ASSERT_EQ(flock(handed_out.get(), LOCK_EX | LOCK_NB), 0);
    EXPECT_EQ(ReasonOf(SharedMemory::CreateOrAdopt(name, 4096).status()), Reason::kInvalidArgument)
        << "the owner is alive, whichever process has locked its memory";
    memory->KeepName();
  }
  const auto next = SharedMemory::CreateOrAdopt(name, 4096);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_TRUE(next->adopted());
  shm_unlink(name.c_str());
}

TEST(SharedMemoryTest, NothingIsLeftOfItsLock) {
  const std::string name = Name("lock-file");
  const std::string lock = name + ".lock";
  const auto exists = [&] { return FileDescriptor(shm_open(lock.c_str(), O_RDONLY, 0)).valid(); };
  {
    const auto memory = SharedMemory::Create(name, 4096);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_TRUE(exists());
    EXPECT_FALSE(SharedMemory::Create(name, 4096).ok());
    EXPECT_TRUE(exists()) << "a refusal leaves the owner's lock alone";
  }
  EXPECT_FALSE(exists());
  InAProcessThatDies([&] {
    const auto memory = SharedMemory::Create(name, 4096);
    if (memory.ok()) Die();
  });
  EXPECT_TRUE(exists()) << "the dead cannot take it away";
  EXPECT_TRUE(SharedMemory::RemoveLeftover(name).ok());
  EXPECT_FALSE(exists());
}

// Objects that another user has put, or can write, in place of a dead owner's memory.
class ForeignMemoryTest : public ::testing::TestWithParam<std::string> {
 protected:
  ForeignMemoryTest() {
    fd_ = FileDescriptor(shm_open(planted_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
    EXPECT_EQ(ftruncate(fd_.get(), 4096), 0);
  }
  ~ForeignMemoryTest() override {
    shm_unlink(planted_.c_str());
    shm_unlink(name_.c_str());
  }

  void ExpectRefused(const std::string& why) {
    for (const auto& make : {&SharedMemory::CreateOrAdopt, &SharedMemory::Create}) {
      const absl::Status refused = make(name_, 4096, {}).status();
      EXPECT_EQ(ReasonOf(refused), Reason::kPermissionDenied) << refused;
      EXPECT_NE(refused.message().find(why), std::string::npos) << refused;
      EXPECT_NE(refused.message().find(planted_), std::string::npos) << refused;
    }
    EXPECT_TRUE(FileDescriptor(shm_open(planted_.c_str(), O_RDONLY, 0)).valid()) << "it is there";
  }

  const std::string name_ = Name("planted");
  const std::string planted_ = name_ + GetParam();
  FileDescriptor fd_;
};

TEST_P(ForeignMemoryTest, WhatAnotherUserMadeIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives a file to another user";
  ASSERT_EQ(fchown(fd_.get(), 65534, 65534), 0);
  ExpectRefused("user 65534 made it");
  if (GetParam().empty()) {
    EXPECT_EQ(ReasonOf(SharedMemory::RemoveLeftover(name_)), Reason::kPermissionDenied);
  }
}

TEST_P(ForeignMemoryTest, WhatOtherUsersMayWriteIsRefused) {
  ASSERT_EQ(fchmod(fd_.get(), 0620), 0);
  ExpectRefused("its mode (0620) lets other users write it");
  ASSERT_EQ(fchmod(fd_.get(), 0602), 0);
  ExpectRefused("its mode (0602) lets other users write it");
}

TEST_P(ForeignMemoryTest, WhatHasASecondNameIsRefused) {
  const std::string second = absl::StrCat("/dev/shm", Name("second"));
  ASSERT_EQ(link(absl::StrCat("/dev/shm", planted_).c_str(), second.c_str()), 0);
  ExpectRefused("it has 2 names");
  unlink(second.c_str());
}

TEST_P(ForeignMemoryTest, ASymbolicLinkIsNotFollowed) {
  const std::string target = absl::StrCat("/dev/shm", Name("target"));
  ASSERT_EQ(rename(absl::StrCat("/dev/shm", planted_).c_str(), target.c_str()), 0);
  ASSERT_EQ(symlink(target.c_str(), absl::StrCat("/dev/shm", planted_).c_str()), 0);
  EXPECT_FALSE(SharedMemory::CreateOrAdopt(name_, 4096).ok());
  unlink(target.c_str());
}

INSTANTIATE_TEST_SUITE_P(MemoryAndItsLock, ForeignMemoryTest, ::testing::Values("", ".lock"));

TEST(SharedMemoryTest, AChildDoesNotInheritAMappingForWriting) {
  auto owner = SharedMemory::Create(Name("fork"), 4096);
  ASSERT_TRUE(owner.ok()) << owner.status();
  auto writer = SharedMemory::Open(owner->name());
  auto reader = SharedMemory::Open(owner->name(), MemoryAccess::kRead);
  ASSERT_TRUE(writer.ok() && reader.ok());
  const auto dies_of = [](const std::function<void()>& touch) {
    const pid_t child = fork();
    if (child == 0) {
      touch();
      _exit(0);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  };
  EXPECT_EQ(dies_of([&] { owner->bytes()[0] = std::byte{1}; }), SIGSEGV);
  EXPECT_EQ(dies_of([&] { writer->bytes()[0] = std::byte{1}; }), SIGSEGV);
  EXPECT_EQ(dies_of([&] {
              volatile const std::byte byte = reader->bytes()[0];
              (void)byte;
            }),
            0)
      << "looking does no harm";
}

TEST(PoolTest, WhatIsNoMemoryIsNotMapped) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[1]);
  EXPECT_EQ(
      ReasonOf(SharedMemory::FromDescriptor(FileDescriptor(ends[0]), MemoryAccess::kRead).status()),
      Reason::kInvalidArgument);
  auto pools = PoolSet::Create(TwoPools(), {.tiers = {{3}}}, absl::StrCat("test-", getpid()));
  ASSERT_TRUE(pools.ok());
  EXPECT_EQ(
      ReasonOf(
          MappedPool::FromDescriptors((*pools)->Mappings()[0], {}, MemoryAccess::kRead).status()),
      Reason::kInvalidArgument);
}

TEST(PoolTest, AMappingThatDoesNotFitItsMemoryIsRefused) {
  auto pools = PoolSet::Create(TwoPools(), {.tiers = {{3}}}, absl::StrCat("test-", getpid()));
  ASSERT_TRUE(pools.ok());
  PoolMapping mapping = (*pools)->Mappings()[0];
  mapping.segments[0].offset_bytes = 64;
  EXPECT_EQ(ReasonOf(MappedPool::Open(mapping).status()), Reason::kInvalidArgument);
  mapping = (*pools)->Mappings()[0];
  mapping.num_slots = 4;
  EXPECT_EQ(ReasonOf(MappedPool::Open(mapping).status()), Reason::kInvalidArgument);
}

}  // namespace
}  // namespace pagoda

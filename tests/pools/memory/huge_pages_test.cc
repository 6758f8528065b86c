#include "pools/memory/huge_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/error.h"
#include "pools/memory/huge_page_memory.h"
#include "pools/memory/shared_memory.h"
#include "pools/pool.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kSize = 5 * kMiB + 8192;  // Two huge pages and a part of a third.

std::string Name(const std::string& what) {
  return absl::StrCat("/pagoda-test-", getpid(), "-huge-", what);
}

// A system whose properties the test sets. The kernel can differ.
struct FakeProbe final : HugePageProbe {
  uint64_t FreePages(uint64_t page_bytes) const override {
    const auto found = free_pages.find(page_bytes);
    return found == free_pages.end() ? 0 : found->second;
  }
  std::string ShmemEnabled() const override { return shmem_enabled; }
  std::string ShmMount() const override { return shm_mount; }
  bool LimitsFaults(uint64_t) const override { return limits_faults; }

  std::map<uint64_t, uint64_t> free_pages;
  std::string shmem_enabled = "never";
  std::string shm_mount = "never";
  bool limits_faults = false;
};

// Some values of a mapping's /proc/self/smaps, in KiB.
uint64_t SmapsKib(const std::byte* data, const std::string& key) {
  std::ifstream smaps("/proc/self/smaps");
  const std::string begin = absl::StrCat(absl::Hex(reinterpret_cast<uint64_t>(data)), "-");
  bool found = false;
  std::string line;
  while (std::getline(smaps, line)) {
    if (line.find(':') == std::string::npos || line.find('-') < line.find(':')) {
      found = line.compare(0, begin.size(), begin) == 0 || (found && line.find('-') > 20);
    } else if (found && line.compare(0, key.size() + 1, key + ":") == 0) {
      return std::stoull(line.substr(key.size() + 1));
    }
  }
  return 0;
}

bool IsInShm(const std::string& name) {
  struct stat info;
  return stat(absl::StrCat("/dev/shm", name).c_str(), &info) == 0;
}

// Writes through one mapping, and reads through another one, as a client's.
void ExpectShared(const SharedMemory& memory) {
  std::byte* const last = memory.bytes().data() + memory.bytes().size() - 1;
  *last = std::byte{0x5a};
  absl::StatusOr<FileDescriptor> fd = memory.OpenDescriptor(MemoryAccess::kRead);
  ASSERT_TRUE(fd.ok()) << fd.status();
  const auto guest = SharedMemory::FromDescriptor(*std::move(fd), MemoryAccess::kRead);
  ASSERT_TRUE(guest.ok()) << guest.status();
  ASSERT_EQ(guest->bytes().size(), memory.bytes().size());
  EXPECT_EQ(guest->bytes().back(), std::byte{0x5a});
  EXPECT_EQ(guest->bytes().front(), std::byte{0});
}

TEST(HugePagesTest, WithoutARequestMemoryIsAsItWas) {
  const auto memory = SharedMemory::Create(Name("plain"), kSize);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->pages(), MemoryPages::kPlain);
  EXPECT_EQ(memory->shortfall(), "");
  EXPECT_EQ(memory->bytes().size(), kSize);
  EXPECT_TRUE(IsInShm(memory->name()));
  ExpectShared(*memory);
}

TEST(HugePagesTest, ASystemWithoutAnyGivesPlainPagesAndSaysWhy) {
  const FakeProbe probe;
  const auto memory =
      SharedMemory::Create(Name("none"), kSize, {.huge_pages = HugePages::kAuto, .probe = &probe});
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->pages(), MemoryPages::kPlain);
  EXPECT_EQ(memory->bytes().size(), kSize);
  EXPECT_TRUE(IsInShm(memory->name()));
  EXPECT_THAT(memory->shortfall(), HasSubstr("no huge pages of 1 GiB"));
  EXPECT_THAT(memory->shortfall(), HasSubstr("no huge pages of 2 MiB"));
  EXPECT_THAT(memory->shortfall(), HasSubstr("shmem_enabled is never"));
  EXPECT_THAT(memory->shortfall(), HasSubstr("mount option huge is never"));
}

TEST(HugePagesTest, PagesThatAreGoneBetweenProbeAndMappingAreNoError) {
  FakeProbe probe;
  probe.free_pages = {{2 * kMiB, uint64_t{1} << 40}, {1024 * kMiB, uint64_t{1} << 40}};
  // More than any machine has: the kernel refuses pages that the probe promised.
  std::string shortfall;
  EXPECT_FALSE(MakeNamelessMemory(Name("race"), uint64_t{1} << 46,
                                  {.huge_pages = HugePages::k1GiB, .probe = &probe}, &shortfall)
                   .has_value());
  EXPECT_THAT(shortfall, HasSubstr("no huge pages of 1 GiB, because"));
  EXPECT_THAT(shortfall, HasSubstr("no huge pages of 2 MiB, because"));
}

TEST(HugePagesTest, TooFewFreePagesAreNotTaken) {
  FakeProbe probe;
  probe.free_pages = {{2 * kMiB, 15}};
  std::string shortfall;
  EXPECT_FALSE(MakeNamelessMemory(Name("few"), 32 * kMiB - 5,
                                  {.huge_pages = HugePages::k2MiB, .probe = &probe}, &shortfall)
                   .has_value());
  EXPECT_THAT(shortfall, HasSubstr("it needs 16 pages and 15 are free"));
}

TEST(HugePagesTest, PagesThatWouldWasteAnEighthAreNotTaken) {
  FakeProbe probe;
  probe.free_pages = {{2 * kMiB, 1000}};
  for (const uint64_t size : {uint64_t{1}, kMiB, 3 * kMiB, 2 * kMiB - 300000}) {
    std::string shortfall;
    EXPECT_FALSE(MakeNamelessMemory(Name("waste"), size,
                                    {.huge_pages = HugePages::k2MiB, .probe = &probe}, &shortfall)
                     .has_value());
    EXPECT_THAT(shortfall, HasSubstr("do not fill pages of that size"));
  }
  std::string shortfall;
  EXPECT_FALSE(MakeNamelessMemory(Name("waste"), UINT64_MAX - 1,
                                  {.huge_pages = HugePages::k2MiB, .probe = &probe}, &shortfall)
                   .has_value());
  EXPECT_THAT(shortfall, HasSubstr("it is too large"));
}

TEST(HugePagesTest, SettingsOfTheKernelSayWhetherSharedMemoryMayBeHuge) {
  FakeProbe probe;
  for (const char* setting : {"always", "within_size", "advise", "force"}) {
    probe.shmem_enabled = setting;
    EXPECT_TRUE(TransparentWithoutName(probe)) << setting;
  }
  for (const char* setting : {"never", "deny", ""}) {
    probe.shmem_enabled = setting;
    EXPECT_FALSE(TransparentWithoutName(probe)) << setting;
  }
  struct Case {
    const char *shmem_enabled, *mount;
    bool gives;
  };
  for (const Case& one : std::vector<Case>{{"never", "advise", true},
                                           {"never", "within_size", true},
                                           {"always", "always", true},
                                           {"advise", "never", false},
                                           {"force", "never", true},
                                           {"deny", "always", false},
                                           {"", "always", false}}) {
    probe.shmem_enabled = one.shmem_enabled;
    probe.shm_mount = one.mount;
    EXPECT_EQ(TransparentInShm(probe), one.gives) << one.shmem_enabled << " " << one.mount;
  }
}

TEST(HugePagesTest, TransparentMemoryHasNoNameButAnOwner) {
  FakeProbe probe;
  probe.shmem_enabled = "advise";
  const PageRequest request{.huge_pages = HugePages::kAuto, .probe = &probe};
  const std::string name = Name("transparent");
  {
    const auto memory = SharedMemory::Create(name, kSize, request);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(memory->pages(), MemoryPages::kTransparent);
    EXPECT_EQ(memory->bytes().size(), kSize) << "no rounding: the tail is small";
    EXPECT_FALSE(IsInShm(name));
    EXPECT_EQ(reinterpret_cast<uint64_t>(memory->bytes().data()) % kTransparentPageBytes, 0u);
    ExpectShared(*memory);
    EXPECT_EQ(ReasonOf(SharedMemory::Create(name, 4096).status()), Reason::kInvalidArgument)
        << "the name is owned";
  }
  EXPECT_TRUE(SharedMemory::Create(name, 4096).ok()) << "and given back";
  EXPECT_FALSE(IsInShm(name + ".lock"));
}

TEST(HugePagesTest, ADeadOwnersObjectGoesWhenItsNameGetsMemoryWithoutOne) {
  const std::string name = Name("leftover");
  {
    auto left = SharedMemory::Create(name, 4096);
    ASSERT_TRUE(left.ok()) << left.status();
    left->KeepName();
  }
  ASSERT_TRUE(IsInShm(name));
  FakeProbe probe;
  probe.shmem_enabled = "always";
  const auto memory =
      SharedMemory::Create(name, kSize, {.huge_pages = HugePages::kAuto, .probe = &probe});
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->pages(), MemoryPages::kTransparent);
  EXPECT_FALSE(IsInShm(name));
}

TEST(HugePagesTest, NobodyElseOpensOrCutsMemoryWithoutAName) {
  FakeProbe probe;
  probe.shmem_enabled = "advise";
  const auto memory = SharedMemory::Create(Name("sealed"), kSize,
                                           {.huge_pages = HugePages::kAuto, .probe = &probe});
  ASSERT_TRUE(memory.ok()) << memory.status();
  const auto fd = memory->OpenDescriptor(MemoryAccess::kReadWrite);
  ASSERT_TRUE(fd.ok()) << fd.status();
  struct stat info;
  ASSERT_EQ(fstat(fd->get(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_NE(ftruncate(fd->get(), 4096), 0) << "a client does not cut what others have mapped";
  EXPECT_NE(ftruncate(fd->get(), 2 * kSize), 0);
  // A descriptor for reading only does not allow writing.
  auto read_only = memory->OpenDescriptor(MemoryAccess::kRead);
  ASSERT_TRUE(read_only.ok());
  EXPECT_TRUE(absl::IsPermissionDenied(
      SharedMemory::FromDescriptor(*std::move(read_only), MemoryAccess::kReadWrite).status()));
}

TEST(HugePagesTest, SparseMemoryOpensAtOnceWhateverItsSize) {
  const FakeProbe probe;
  const uint64_t size = uint64_t{64} << 30;
  const absl::Time begin = absl::Now();
  const auto memory = SharedMemory::Create(
      Name("sparse"), size,
      {.huge_pages = HugePages::kOff, .reservation = Reservation::kSparse, .probe = &probe});
  EXPECT_LT(absl::Now() - begin, absl::Seconds(1)) << "generous: it takes less than a millisecond";
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->bytes().size(), size);
  struct stat info;
  const auto fd = memory->OpenDescriptor(MemoryAccess::kRead);
  ASSERT_TRUE(fd.ok() && fstat(fd->get(), &info) == 0);
  EXPECT_EQ(info.st_blocks, 0) << "nothing is taken";
  memory->bytes()[size / 2] = std::byte{1};
  ASSERT_EQ(fstat(fd->get(), &info), 0);
  EXPECT_GT(info.st_blocks, 0);
  ExpectShared(*memory);
}

TEST(HugePagesTest, SparseTransparentMemoryTakesNothingEither) {
  FakeProbe probe;
  probe.shmem_enabled = "within_size";
  const auto memory = SharedMemory::Create(
      Name("sparse-thp"), uint64_t{64} << 30,
      {.huge_pages = HugePages::kAuto, .reservation = Reservation::kSparse, .probe = &probe});
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->pages(), MemoryPages::kTransparent);
  EXPECT_EQ(SmapsKib(memory->bytes().data(), "Rss"), 0u);
}

// Memory beyond that of the machine must be refused here, before the kernel kills a process.
TEST(HugePagesTest, TransparentMemoryThatDoesNotFitIsAnError) {
  FakeProbe probe;
  probe.shmem_enabled = "always";
  const auto memory = SharedMemory::Create(Name("vast"), uint64_t{1} << 46,
                                           {.huge_pages = HugePages::kAuto, .probe = &probe});
  EXPECT_EQ(ReasonOf(memory.status()), Reason::kOutOfMemory) << memory.status();
}

TEST(HugePagesTest, KeptMemoryHasItsNameAndIsAdoptedInAnyPages) {
  FakeProbe probe;
  probe.free_pages = {{2 * kMiB, 1000}};
  probe.shmem_enabled = "always";
  probe.shm_mount = "advise";
  const std::string name = Name("kept");
  {
    auto memory =
        SharedMemory::CreateOrAdopt(name, kSize, {.huge_pages = HugePages::kAuto, .probe = &probe});
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(memory->pages(), MemoryPages::kTransparent);
    EXPECT_TRUE(IsInShm(name));
    memory->bytes()[3 * kMiB] = std::byte{7};
    memory->KeepName();
  }
  {
    const auto memory = SharedMemory::CreateOrAdopt(name, kSize);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_TRUE(memory->adopted()) << "the size does not depend on the pages";
    EXPECT_EQ(memory->bytes()[3 * kMiB], std::byte{7});
  }
  EXPECT_TRUE(SharedMemory::RemoveLeftover(name).ok());
}

// MADV_COLLAPSE needs a kernel that has it, but no setting of the system.
class CollapseTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto memory = SharedMemory::Create(Name("collapses"), kSize);
    ASSERT_TRUE(memory.ok()) << memory.status();
    const absl::Status collapsed = Collapse(memory->bytes().data(), kSize);
    if (!collapsed.ok()) GTEST_SKIP() << "this kernel collapses no shared memory: " << collapsed;
    ASSERT_EQ(SmapsKib(memory->bytes().data(), "ShmemPmdMapped"), 4096u);
  }
  const FakeProbe probe_;
};

TEST_F(CollapseTest, HugePagesByNameAreMadeOfSmallOnesWhereNothingElseIs) {
  for (const HugePages asked : {HugePages::k2MiB, HugePages::k1GiB}) {
    const auto memory =
        SharedMemory::Create(Name("made"), kSize, {.huge_pages = asked, .probe = &probe_});
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(memory->pages(), MemoryPages::kTransparent);
    EXPECT_THAT(memory->shortfall(), HasSubstr("no huge pages of 2 MiB"));
    EXPECT_EQ(SmapsKib(memory->bytes().data(), "ShmemPmdMapped"), 4096u);
    ExpectShared(*memory);
  }
}

TEST_F(CollapseTest, AutoWaitsForNoCopying) {
  const auto memory =
      SharedMemory::Create(Name("auto"), kSize, {.huge_pages = HugePages::kAuto, .probe = &probe_});
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->pages(), MemoryPages::kPlain);
}

TEST_F(CollapseTest, KeptBytesStayWhenTheyBecomeHuge) {
  const std::string name = Name("kept-made");
  {
    auto memory = SharedMemory::CreateOrAdopt(name, kSize);
    ASSERT_TRUE(memory.ok()) << memory.status();
    for (uint64_t i = 0; i < kSize; ++i) memory->bytes()[i] = static_cast<std::byte>(i * 31 >> 3);
    memory->KeepName();
  }
  {
    const auto memory = SharedMemory::CreateOrAdopt(
        name, kSize, {.huge_pages = HugePages::k2MiB, .probe = &probe_});
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_TRUE(memory->adopted());
    EXPECT_EQ(memory->pages(), MemoryPages::kTransparent);
    for (uint64_t i = 0; i < kSize; ++i) {
      ASSERT_EQ(memory->bytes()[i], static_cast<std::byte>(i * 31 >> 3)) << i;
    }
  }
  EXPECT_TRUE(SharedMemory::RemoveLeftover(name).ok());
}

TEST_F(CollapseTest, AClientsMappingIsHugeToo) {
  const auto memory = SharedMemory::Create(Name("client"), kSize,
                                           {.huge_pages = HugePages::k2MiB, .probe = &probe_});
  ASSERT_TRUE(memory.ok()) << memory.status();
  auto fd = memory->OpenDescriptor(MemoryAccess::kRead);
  ASSERT_TRUE(fd.ok());
  const auto guest = SharedMemory::FromDescriptor(*std::move(fd), MemoryAccess::kRead);
  ASSERT_TRUE(guest.ok()) << guest.status();
  volatile std::byte first = guest->bytes()[0];
  volatile std::byte second = guest->bytes()[2 * kMiB];
  static_cast<void>(first);
  static_cast<void>(second);
  EXPECT_EQ(SmapsKib(guest->bytes().data(), "ShmemPmdMapped"), 4096u);
}

// Uses pages of the kernel's pool if this machine has free ones there. The test never changes the
// system.
class HugetlbTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kPoolBytes = 16 * kMiB - 4096;  // Eight pages.

  void SetUp() override {
    const uint64_t free_pages = HugePageProbe::System().FreePages(2 * kMiB);
    if (free_pages < 8) {
      GTEST_SKIP() << free_pages << " huge pages of 2 MiB are free and the test takes 8: "
                   << "sysctl vm.nr_hugepages=16 makes some";
    }
  }
};

TEST_F(HugetlbTest, MemoryIsMadeOfWholePagesThatAreReserved) {
  const uint64_t free_before = HugePageProbe::System().FreePages(2 * kMiB);
  const std::string name = Name("hugetlb");
  {
    const auto memory = SharedMemory::Create(name, kPoolBytes, {.huge_pages = HugePages::kAuto});
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(memory->pages(), MemoryPages::k2MiB) << memory->shortfall();
    EXPECT_EQ(memory->bytes().size(), 16 * kMiB);
    EXPECT_FALSE(IsInShm(name));
    EXPECT_EQ(HugePageProbe::System().FreePages(2 * kMiB), free_before - 8)
        << "reserved before they are touched";
    ExpectShared(*memory);
    EXPECT_EQ(HugePageProbe::System().FreePages(2 * kMiB), free_before - 8);
    EXPECT_EQ(ReasonOf(SharedMemory::Create(name, 4096).status()), Reason::kInvalidArgument);
  }
  EXPECT_EQ(HugePageProbe::System().FreePages(2 * kMiB), free_before) << "all of it is given back";
}

TEST_F(HugetlbTest, WhereFaultsMayBeRefusedAllPagesAreTakenAtOnce) {
  FakeProbe probe;
  probe.free_pages = {{2 * kMiB, 8}};
  probe.limits_faults = true;
  const auto memory = SharedMemory::Create(Name("limited"), kPoolBytes,
                                           {.huge_pages = HugePages::k2MiB, .probe = &probe});
  ASSERT_TRUE(memory.ok()) << memory.status();
  ASSERT_EQ(memory->pages(), MemoryPages::k2MiB);
  EXPECT_EQ(SmapsKib(memory->bytes().data(), "Shared_Hugetlb") +
                SmapsKib(memory->bytes().data(), "Private_Hugetlb"),
            16 * 1024u);
  for (const MemoryAccess access : {MemoryAccess::kRead, MemoryAccess::kReadWrite}) {
    auto fd = memory->OpenDescriptor(access);
    ASSERT_TRUE(fd.ok());
    const auto guest = SharedMemory::FromDescriptor(*std::move(fd), access, &probe);
    ASSERT_TRUE(guest.ok()) << guest.status();
    EXPECT_EQ(guest->pages(), MemoryPages::k2MiB);
    EXPECT_GT(SmapsKib(guest->bytes().data(), "Shared_Hugetlb"), 0u);
  }
}

TEST_F(HugetlbTest, APoolIsSeenByAClientInAnotherProcess) {
  const auto layout = CacheLayout::Create(
      {.tokens_per_block = 16, .layers = {{.num_kv_heads = 8, .head_dim = 64}}});
  ASSERT_TRUE(layout.ok());
  const uint64_t stride = layout->windows()[0].pools[0].slot_stride_bytes();
  const auto slots = static_cast<uint32_t>(kPoolBytes / stride);
  auto pools = PoolSet::Create(*layout, {.tiers = {{slots}}}, absl::StrCat("test-", getpid()),
                               PoolPlacement{.pages = {.huge_pages = HugePages::k2MiB}});
  ASSERT_TRUE(pools.ok()) << pools.status();
  EXPECT_EQ((*pools)->pages(0, kPrimaryTier), MemoryPages::k2MiB);
  EXPECT_EQ((*pools)->BytesByPages(kPrimaryTier)[static_cast<size_t>(MemoryPages::k2MiB)],
            16 * kMiB);
  const PoolMapping mapping = (*pools)->Mappings()[0];
  EXPECT_EQ(mapping.segments[0].size_bytes, 16 * kMiB);
  EXPECT_EQ(mapping.layout.slot_stride_bytes(), stride) << "strides do not change";
  EXPECT_TRUE(absl::IsNotFound(MappedPool::Open(mapping).status())) << "it has no name";
  auto descriptors = (*pools)->OpenDescriptors(MemoryAccess::kReadWrite);
  ASSERT_TRUE(descriptors.ok());
  const pid_t child = fork();
  if (child == 0) {
    auto mapped =
        MappedPool::FromDescriptors(mapping, *std::move(descriptors), MemoryAccess::kReadWrite);
    if (!mapped.ok()) _exit(1);
    std::memset((*mapped)->slot(SlotIndex{slots - 1}).data(), 0x77, stride);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ((*pools)->pool(0, 0).slot(SlotIndex{slots - 1}).back(), std::byte{0x77});
  EXPECT_EQ((*pools)->pool(0, 0).bytes().size(), slots * stride);
}

TEST(PoolPagesTest, ASetTellsThePagesOfItsTiers) {
  FakeProbe probe;
  probe.shmem_enabled = "advise";
  const auto layout = CacheLayout::Create(
      {.tokens_per_block = 16,
       .layers = {{.num_kv_heads = 8, .head_dim = 64},
                  {.window = WindowSize(64), .num_kv_heads = 1, .head_dim = 8}}});
  ASSERT_TRUE(layout.ok());
  // The window's pools are too small for a huge page; those of full attention are large enough.
  auto pools = PoolSet::Create(
      *layout, {.tiers = {{4, 64}, {4, 4}}}, absl::StrCat("test-", getpid(), "-pages"),
      PoolPlacement{.pages = {.huge_pages = HugePages::kAuto, .probe = &probe}});
  ASSERT_TRUE(pools.ok()) << pools.status();
  EXPECT_EQ((*pools)->pages(0, kPrimaryTier), MemoryPages::kPlain);
  EXPECT_EQ((*pools)->pages(1, kPrimaryTier), MemoryPages::kTransparent);
  const auto bytes = (*pools)->BytesByPages(kPrimaryTier);
  EXPECT_EQ(bytes[static_cast<size_t>(MemoryPages::kTransparent)],
            64 * layout->windows()[1].block_bytes());
  EXPECT_EQ(bytes[static_cast<size_t>(MemoryPages::kPlain)],
            4 * layout->windows()[0].block_bytes());
  EXPECT_THAT((*pools)->PagesShortfall(kPrimaryTier), HasSubstr("it is too small"));
  EXPECT_EQ((*pools)->BytesByPages(Tier(3)), (std::array<uint64_t, kNumMemoryPages>{}));

  // By descriptor, and by name if there is one.
  const std::vector<PoolMapping> mappings = (*pools)->Mappings();
  auto descriptors = (*pools)->OpenDescriptors(MemoryAccess::kReadWrite);
  ASSERT_TRUE(descriptors.ok());
  for (size_t i = 0; i < mappings.size(); ++i) {
    std::vector<FileDescriptor> one;
    one.push_back(std::move((*descriptors)[i]));
    auto mapped =
        MappedPool::FromDescriptors(mappings[i], std::move(one), MemoryAccess::kReadWrite);
    ASSERT_TRUE(mapped.ok()) << mapped.status();
    EXPECT_EQ(MappedPool::Open(mappings[i]).ok(),
              mappings[i].segments[0].pages == MemoryPages::kPlain);
  }
}

TEST(HugePageProbeTest, TheSystemsViewIsTheKernels) {
  const HugePageProbe& system = HugePageProbe::System();
  EXPECT_EQ(system.FreePages(3 * kMiB), 0u) << "no processor has such pages";
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  std::string line;
  if (std::getline(file, line)) {
    EXPECT_THAT(line, HasSubstr(absl::StrCat("[", system.ShmemEnabled(), "]")));
  } else {
    EXPECT_EQ(system.ShmemEnabled(), "");
  }
  EXPECT_THAT(system.ShmMount(), ::testing::AnyOf("never", "advise", "within_size", "always"));
}

TEST(HugePageProbeTest, AMemoryPolicyMayRefuseFaults) {
  EXPECT_EXIT(
      {
        const unsigned long node = 1;
        // MPOL_BIND to node 0.
        if (syscall(SYS_set_mempolicy, 2, &node, 64) != 0) _exit(2);
        _exit(HugePageProbe::System().LimitsFaults(2 * kMiB) ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace pagoda

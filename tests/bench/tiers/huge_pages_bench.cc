// How much huge pages help a client that maps a pool: the speed of one core that reads random
// pieces of 8 KiB, and the page tables of its mapping. Measures each kind of pages that this
// machine has, in turn with plain pages.
//
//   huge_pages_bench [--mib MIB]    the pool's size; 2048 without it
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "pools/memory/huge_pages.h"
#include "pools/pool.h"
#include "tests/bench/figure.h"

namespace pagoda::bench {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kPieceBytes = 8192;
constexpr size_t kPieces = 100000;  // The pieces of one repetition.
constexpr double kGiga = 1e9;

// Offers one size of the kernel's pool of huge pages, or none.
class OneSizeProbe final : public HugePageProbe {
 public:
  explicit OneSizeProbe(uint64_t page_bytes) : page_bytes_(page_bytes) {}
  uint64_t FreePages(uint64_t page_bytes) const override {
    return page_bytes == page_bytes_ ? System().FreePages(page_bytes) : 0;
  }
  std::string ShmemEnabled() const override { return System().ShmemEnabled(); }
  std::string ShmMount() const override { return System().ShmMount(); }
  bool LimitsFaults(uint64_t page_bytes) const override {
    return System().LimitsFaults(page_bytes);
  }

 private:
  const uint64_t page_bytes_;
};

// A pool and a client's mapping of it, both fully touched.
struct MappedMemory {
  std::unique_ptr<PoolSet> pools;
  std::unique_ptr<MappedPool> client;
  MemoryPages pages = MemoryPages::kPlain;
  uint64_t page_table_kib = 0;  // The page table of the client's mapping.
};

template <class T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(value);
}

uint64_t PageTableKib() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    unsigned long long kib = 0;
    if (std::sscanf(line.c_str(), "VmPTE: %llu kB", &kib) == 1) return kib;
  }
  return 0;
}

uint64_t SumOf(const std::byte* piece) {
  uint64_t words[8] = {};
  for (size_t at = 0; at < kPieceBytes; at += sizeof(words)) {
    uint64_t read[8];
    std::memcpy(read, piece + at, sizeof(read));
    for (size_t i = 0; i < 8; ++i) words[i] += read[i];
  }
  uint64_t sum = 0;
  for (const uint64_t word : words) sum += word;
  return sum;
}

MappedMemory Map(uint64_t bytes, const PageRequest& request) {
  const CacheLayout layout = Must(CacheLayout::Create(
      {.name = "bench", .tokens_per_block = 16, .layers = {{.num_kv_heads = 8, .head_dim = 64}}}));
  const auto slots =
      static_cast<uint32_t>(bytes / layout.windows().front().pools.front().slot_stride_bytes());
  MappedMemory memory;
  memory.pools = Must(
      PoolSet::Create(layout, {.tiers = {{slots}}},
                      absl::StrCat("bench-", getpid(), "-", static_cast<int>(request.huge_pages)),
                      PoolPlacement{.pages = request}));
  memory.pages = memory.pools->pages(0, kPrimaryTier);
  const absl::Span<std::byte> own = memory.pools->pool(0, 0).bytes();
  std::memset(own.data(), 1, own.size());
  const uint64_t before = PageTableKib();
  memory.client = Must(MappedPool::FromDescriptors(
      memory.pools->Mappings().front(), Must(memory.pools->OpenDescriptors(MemoryAccess::kRead)),
      MemoryAccess::kRead));
  const absl::Span<const std::byte> mapped = memory.client->bytes();
  uint64_t sum = 0;
  for (size_t at = 0; at + kPieceBytes <= mapped.size(); at += kPieceBytes) {
    sum += SumOf(mapped.data() + at);
  }
  PAGODA_CHECK(sum > 0, "the client sees what was written");
  memory.page_table_kib = PageTableKib() - before;
  return memory;
}

double ThreadSeconds() {
  timespec now;
  PAGODA_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0, "a thread has a clock");
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// GB per second of one core that reads random pieces whole. Uses the thread's own clock, which does
// not count the time of other work on the machine.
double ReadSpeed(const MappedMemory& memory, std::mt19937_64& random) {
  const absl::Span<const std::byte> mapped = memory.client->bytes();
  std::uniform_int_distribution<uint64_t> piece(0, mapped.size() / kPieceBytes - 1);
  std::vector<uint64_t> offsets(kPieces);
  for (uint64_t& offset : offsets) offset = piece(random) * kPieceBytes;
  uint64_t sum = 0;
  const double begin = ThreadSeconds();
  for (const uint64_t offset : offsets) sum += SumOf(mapped.data() + offset);
  const double seconds = ThreadSeconds() - begin;
  PAGODA_CHECK(sum > 0, "the client sees what was written");
  return static_cast<double>(kPieces * kPieceBytes) / seconds / kGiga;
}

void Run(uint64_t bytes) {
  std::mt19937_64 random(1);
  const MappedMemory plain = Map(bytes, {});
  struct Kind {
    MemoryPages pages;
    HugePages asked;  // Named only if that makes huge pages of plain ones, which is slow.
  };
  for (const Kind& kind :
       {Kind{MemoryPages::kTransparent, HugePages::k2MiB},
        Kind{MemoryPages::k2MiB, HugePages::kAuto}, Kind{MemoryPages::k1GiB, HugePages::kAuto}}) {
    const OneSizeProbe probe(HugetlbPageBytes(kind.pages));
    const std::string name(PagesName(kind.pages));
    const MappedMemory huge = Map(bytes, {.huge_pages = kind.asked, .probe = &probe});
    if (huge.pages != kind.pages) {
      std::fprintf(stderr, "no %s: %s\n", name.c_str(),
                   huge.pools->PagesShortfall(kPrimaryTier).c_str());
      continue;
    }
    const auto [fast, slow] = InterleavedMedians([&] { return ReadSpeed(huge, random); },
                                                 [&] { return ReadSpeed(plain, random); });
    Print({"random_8k_" + name, fast, "GB/s", "the same in plain pages", slow});
    Print({"page_tables_" + name, static_cast<double>(huge.page_table_kib), "KiB",
           "of the same mapping in plain pages", static_cast<double>(plain.page_table_kib)});
  }
}

}  // namespace
}  // namespace pagoda::bench

int main(int argc, char** argv) {
  uint64_t mib = 2048;
  if (argc != 1 && (argc != 3 || std::strcmp(argv[1], "--mib") != 0 ||
                    !absl::SimpleAtoi(argv[2], &mib) || mib < 16 || mib > (1 << 20))) {
    std::fprintf(stderr, "usage: huge_pages_bench [--mib MIB], from 16 on\n");
    return 2;
  }
  pagoda::bench::Run(mib * pagoda::bench::kMiB);
  return 0;
}

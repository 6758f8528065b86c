// The throughput of the slab file: blocks to and from shared memory, the CPU seconds for each GB
// with checksums, and a scan of the headers. tests/bench/tiers/tiers_bench.py runs it and fio in
// turn.
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "pools/file/slab_file.h"
#include "tests/bench/figure.h"

namespace pagoda::bench {
namespace {

constexpr uint32_t kDepth = 32;
constexpr double kGiga = 1e9;

void Fail(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

// Pages of shared memory, which pools also have.
absl::Span<std::byte> SharedPages(uint64_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  PAGODA_CHECK(memory != MAP_FAILED, "there is memory");
  return {static_cast<std::byte*>(memory), bytes};
}

// Prints a line without a yardstick: tiers_bench.py adds it.
void PrintRate(const std::string& figure, double value, const std::string& unit) {
  std::printf("{\"figure\": \"%s\", \"value\": %.4g, \"unit\": \"%s\"}\n", figure.c_str(), value,
              unit.c_str());
  std::fflush(stdout);
}

struct Round {
  double seconds = 0;
  double cpu_seconds = 0;
};

template <class Body>
Round Measure(const Body& body) {
  const double before = CpuSeconds();
  Round round{.seconds = Seconds(body)};
  round.cpu_seconds = CpuSeconds() - before;
  return round;
}

// The file remains, with a block in each slot.
void MeasureBlocks(const std::string& path, EngineKind engine, uint64_t block_bytes,
                   uint64_t num_blocks) {
  SlabFile::Options options;
  options.path = path;
  options.num_slots = static_cast<uint32_t>(num_blocks);
  options.payload_bytes = block_bytes;
  options.on_foreign = SlabFile::OnForeign::kReplace;
  options.engine = engine;
  options.depth = kDepth;
  absl::StatusOr<std::unique_ptr<SlabFile>> opened = SlabFile::Open(options);
  Fail(opened.status());
  SlabFile& file = **opened;
  // The memory has fewer blocks than the file, so many slots share one block of memory.
  const uint64_t shared = std::min<uint64_t>(512, num_blocks);
  const absl::Span<std::byte> memory = SharedPages(shared * block_bytes);
  for (uint64_t i = 0; i < memory.size(); i += 8) {
    memory[i] = static_cast<std::byte>(i * 2654435761u >> 24);
  }
  const auto piece = [&](uint32_t slot) {
    return memory.subspan(slot % shared * block_bytes, block_bytes);
  };
  const auto write_all = [&] {
    for (uint32_t slot = 0; slot < options.num_slots; ++slot) {
      file.Write(SlotIndex(slot), {}, {absl::Span<const std::byte>(piece(slot))}, Fail);
    }
    file.WaitUntilIdle();
  };
  // A file system writes reserved space more slowly the first time.
  write_all();
  const Round write = Measure(write_all);
  const Round read = Measure([&] {
    for (uint32_t slot = 0; slot < options.num_slots; ++slot) {
      file.Read(SlotIndex(slot), {}, {piece(slot)}, Fail);
      // Two reads into one block of memory must not overlap.
      if (slot % shared == shared - 1) file.WaitUntilIdle();
    }
    file.WaitUntilIdle();
  });
  uint64_t blocks = 0;
  const Round scan = Measure([&] {
    Fail(file.Scan([&](SlotIndex, SlabFile::Record, uint64_t) { ++blocks; }, nullptr).status());
  });
  PAGODA_CHECK(blocks == num_blocks, "all blocks are there");
  const SlabStats stats = file.stats();
  std::fprintf(stderr, "disk_bench: engine %s, direct %d\n", stats.engine.c_str(), stats.direct);
  const double gigabytes = double(num_blocks * block_bytes) / kGiga;
  PrintRate("write", gigabytes / write.seconds, "GB/s");
  PrintRate("read", gigabytes / read.seconds, "GB/s");
  PrintRate("cpu_s_per_gb", (write.cpu_seconds + read.cpu_seconds) / (2 * gigabytes), "s/GB");
  PrintRate("scan", double(blocks) / scan.seconds, "slots/s");
  munmap(memory.data(), memory.size());
}

}  // namespace
}  // namespace pagoda::bench

// disk_bench FILE uring|threads BLOCK_BYTES BLOCKS
int main(int argc, char** argv) {
  const std::string way = argc == 5 ? argv[2] : "";
  const uint64_t block_bytes = argc == 5 ? std::strtoull(argv[3], nullptr, 10) : 0;
  const uint64_t num_blocks = argc == 5 ? std::strtoull(argv[4], nullptr, 10) : 0;
  if ((way != "uring" && way != "threads") || block_bytes == 0 || num_blocks == 0) {
    std::fprintf(stderr, "disk_bench FILE uring|threads BLOCK_BYTES BLOCKS\n");
    return 2;
  }
  const pagoda::EngineKind engine =
      way == "threads" ? pagoda::EngineKind::kThreads : pagoda::EngineKind::kUring;
  pagoda::bench::MeasureBlocks(argv[1], engine, block_bytes, num_blocks);
  return 0;
}

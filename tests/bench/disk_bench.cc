// The slab file's throughput: blocks of 128 KiB and 1 MiB to and from shared memory, a scan of the
// headers, and the CPU seconds a GB with checksums. tests/bench/disk_fio.sh runs it and then fio,
// with the same block sizes and depth, on a file of the same size.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "pools/check.h"
#include "pools/file/slab_file.h"
#include "tests/bench/figure.h"

namespace pagoda::bench {
namespace {

constexpr uint64_t kFileBytes = uint64_t{1} << 30;
constexpr uint32_t kDepth = 32;
constexpr int kRounds = 3;
constexpr double kGiga = 1e9;

double CpuSeconds() {
  rusage use;
  PAGODA_CHECK(getrusage(RUSAGE_SELF, &use) == 0, "a process knows its use");
  const auto seconds = [](const timeval& time) { return double(time.tv_sec) + time.tv_usec / 1e6; };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

void Fail(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

// As pools are: pages of shared memory.
absl::Span<std::byte> SharedPages(uint64_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  PAGODA_CHECK(memory != MAP_FAILED, "there is memory");
  return {static_cast<std::byte*>(memory), bytes};
}

// A line of output without a yardstick: fio's lines stand beside it.
void PrintRate(const std::string& id, double value, const std::string& unit) {
  std::printf("{\"figure\": \"%s\", \"value\": %.4g, \"unit\": \"%s\"}\n", id.c_str(), value,
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

void MeasureBlocks(const std::string& path, EngineKind engine, uint64_t block_bytes,
                   const std::string& name) {
  SlabFile::Options options;
  options.path = path;
  options.num_slots = static_cast<uint32_t>(kFileBytes / block_bytes);
  options.payload_bytes = block_bytes;
  options.on_foreign = SlabFile::OnForeign::kReplace;
  options.engine = engine;
  options.depth = kDepth;
  absl::StatusOr<std::unique_ptr<SlabFile>> opened = SlabFile::Open(options);
  Fail(opened.status());
  SlabFile& file = **opened;
  // Fewer blocks of memory than of the file: many slots share one.
  constexpr uint32_t kBlocks = 512;
  const absl::Span<std::byte> memory = SharedPages(kBlocks * block_bytes);
  for (uint64_t i = 0; i < memory.size(); i += 8) {
    memory[i] = static_cast<std::byte>(i * 2654435761u >> 24);
  }
  const auto piece = [&](uint32_t slot) {
    return memory.subspan(slot % kBlocks * block_bytes, block_bytes);
  };
  const Round first = Measure([&] {
    for (uint32_t slot = 0; slot < options.num_slots; ++slot) {
      file.Write(SlotIndex(slot), {}, {absl::Span<const std::byte>(piece(slot))}, Fail);
    }
    file.Drain();
  });
  std::vector<double> writes, reads, cpu;
  for (int round = 0; round < kRounds; ++round) {
    const Round write = Measure([&] {
      for (uint32_t slot = 0; slot < options.num_slots; ++slot) {
        file.Write(SlotIndex(slot), {}, {absl::Span<const std::byte>(piece(slot))}, Fail);
      }
      file.Drain();
    });
    const Round read = Measure([&] {
      for (uint32_t slot = 0; slot < options.num_slots; ++slot) {
        file.Read(SlotIndex(slot), {}, {piece(slot)}, Fail);
        // Two reads into one block of memory must not meet.
        if (slot % kBlocks == kBlocks - 1) file.Drain();
      }
      file.Drain();
    });
    const double gigabytes = double(kFileBytes) / kGiga;
    writes.push_back(gigabytes / write.seconds);
    reads.push_back(gigabytes / read.seconds);
    cpu.push_back((write.cpu_seconds + read.cpu_seconds) / (2 * gigabytes));
  }
  const std::string engine_name = file.stats().engine;
  PrintRate(absl::StrCat("disk_first_write_", name, "_", engine_name),
            double(kFileBytes) / kGiga / first.seconds, "GB/s");
  PrintRate(absl::StrCat("disk_write_", name, "_", engine_name), Percentile(writes, 0.5), "GB/s");
  PrintRate(absl::StrCat("disk_read_", name, "_", engine_name), Percentile(reads, 0.5), "GB/s");
  PrintRate(absl::StrCat("disk_cpu_s_per_gb_", name, "_", engine_name), Percentile(cpu, 0.5),
            "s/GB");
  uint64_t blocks = 0;
  const double scan = Seconds([&] {
    absl::StatusOr<SlabFile::ScanResult> result =
        file.Scan([&](SlotIndex, SlabFile::Record, uint64_t) { ++blocks; }, nullptr);
    Fail(result.status());
  });
  PAGODA_CHECK(blocks == options.num_slots, "all blocks are there");
  PrintRate(absl::StrCat("disk_scan_", name, "_", engine_name), double(blocks) / scan, "slots/s");
  munmap(memory.data(), memory.size());
}

}  // namespace
}  // namespace pagoda::bench

// disk_bench FILE [uring|threads]
int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "disk_bench FILE [uring|threads]\n");
    return 2;
  }
  const std::string way = argc > 2 ? argv[2] : "uring";
  const pagoda::EngineKind engine =
      way == "threads" ? pagoda::EngineKind::kThreads : pagoda::EngineKind::kAuto;
  pagoda::bench::MeasureBlocks(argv[1], engine, 128 << 10, "128k");
  pagoda::bench::MeasureBlocks(argv[1], engine, 1 << 20, "1m");
  unlink(argv[1]);
  return 0;
}

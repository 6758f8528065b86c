// gpu_kernels_bench [ID...]
// The kernels' figures on a GPU, one JSON object per line, each next to a yardstick of the same
// run. ID: the beginning of the wanted figures' names; without any, all figures. On Hopper,
// gpu_hopper_* are the figures of AttentionKernels::kHopper with the same shapes. Exit status 77
// without a device. Tables are random. KV is cold: calls cycle through several pools.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/copy.h"
#include "kernels/cuda/device/tensor_map.h"
#include "tests/bench/figure.h"
#include "tests/gpu/cuda_check.h"
#include "tests/gpu/gpu_timer.h"
#include "tests/gpu/timed_attention.h"
#include "tests/gpu/yardsticks.h"
#include "tests/kernels/cuda/device_memory.h"

namespace pagoda::kernels::cuda {
namespace {

constexpr uint32_t kHeadDim = 128;

std::vector<std::string> wanted;

bool Wanted(const std::string& id) {
  return wanted.empty() || std::any_of(wanted.begin(), wanted.end(), [&](const std::string& w) {
           return absl::StartsWith(id, w);
         });
}

void RequireLaunch(int error) {
  if (error == 0) return;
  std::fprintf(stderr, "launch: error %d\n", error);
  std::exit(1);
}

struct Machine {
  uint32_t multiprocessors = 0;
  bool hopper = false;
  double copy_gbs = 0;    // Bytes read and written by a large copy.
  double read_gbs = 0;    // Measured by a kernel that only reads.
  double mma_tflops = 0;  // By mma.sync from registers.
  // On Hopper, wgmma's: 4,096 bf16 operations per cycle and multiprocessor (NVIDIA, "H100 Tensor
  // Core GPU Architecture": 989 TFLOP/s with 132 multiprocessors at 1,830 MHz), at the device's
  // maximum clock.
  double nominal_tflops = 0;
};

Machine Measure() {
  Machine machine;
  cudaDeviceProp properties;
  PAGODA_CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
  machine.multiprocessors = static_cast<uint32_t>(properties.multiProcessorCount);
  constexpr uint64_t kBytes = uint64_t{2} << 30;
  DeviceArray<std::byte> from(kBytes);
  DeviceArray<std::byte> to(kBytes);
  FillRandom(from.data(), kBytes);
  const double copy = GraphSeconds(4, [&](Stream stream, int) {
    PAGODA_CUDA_CHECK(
        cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice, stream));
  });
  machine.copy_gbs = 2e-9 * kBytes / copy;
  DeviceArray<uint32_t> sink(1);
  const double read = GraphSeconds(4, [&](Stream stream, int) {
    RequireLaunch(LaunchRead(from.data(), kBytes, sink.data(), stream));
  });
  machine.read_gbs = 1e-9 * kBytes / read;
  const double products = GraphSeconds(4, [&](Stream stream, int) {
    RequireLaunch(
        LaunchProducts(machine.multiprocessors, reinterpret_cast<float*>(sink.data()), stream));
  });
  machine.mma_tflops = 1e-12 * ProductOperations(machine.multiprocessors) / products;
  HopperDevice hopper;
  Require(FindHopper(&hopper));
  machine.hopper = hopper.present;
  int clock_khz = 0;
  PAGODA_CUDA_CHECK(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, 0));
  machine.nominal_tflops = 1e-9 * clock_khz * machine.multiprocessors * 4096;
  if (Wanted("gpu_read")) {
    bench::Print({"gpu_read", machine.read_gbs, "GB/s", "copy", machine.copy_gbs});
  }
  if (Wanted("gpu_mma_sync")) {
    bench::Print({"gpu_mma_sync", machine.mma_tflops, "TFLOP/s", "nominal peak of wgmma",
                  machine.nominal_tflops});
  }
  return machine;
}

// The kernels with figures, and the beginnings of the figures' names.
struct Family {
  AttentionKernels kernels;
  const char* prefix;
};

std::vector<Family> Families(const Machine& machine) {
  std::vector<Family> families = {{AttentionKernels::kSm80, "gpu_"}};
  if (machine.hopper) families.push_back({AttentionKernels::kHopper, "gpu_hopper_"});
  return families;
}

void PrintDecode(const std::string& id, const AttentionBatch& batch, const Machine& machine,
                 const Family& family) {
  if (!Wanted(id)) return;
  const double seconds = AttentionSeconds(batch, machine.multiprocessors, family.kernels);
  const double bytes =
      static_cast<double>(batch.kv_bytes()) + 4.0 * batch.sequences * batch.num_heads * kHeadDim;
  bench::Print({id, 1e-9 * bytes / seconds, "GB/s", "copy", machine.copy_gbs});
}

void Decode(const Machine& machine, const Family& family) {
  for (const uint32_t num_heads : {32u, 64u}) {
    for (const uint32_t tokens : {16u, 32u, 64u}) {
      for (const int32_t context : {4096, 16384}) {
        const uint32_t sequences = context == 4096 ? 64 : 16;  // 1 GiB of K and V.
        const std::string id = absl::StrCat(family.prefix, "decode_bf16_g", num_heads / 8, "_p",
                                            tokens, "_kv", context, "_b", sequences);
        PrintDecode(id, {sequences, 1, context, num_heads, 8, tokens}, machine, family);
      }
    }
  }
}

// Multi-head latent attention: with 16 heads, as on a rank of eight, and with all 128.
void DecodeLatents(const Machine& machine, const Family& family) {
  for (const uint32_t num_heads : {16u, 128u}) {
    for (const int32_t context : {4096, 16384}) {
      const uint32_t sequences = context == 4096 ? 128 : 32;  // 576 MiB of K.
      const std::string id =
          absl::StrCat(family.prefix, "decode_mla_h", num_heads, "_kv", context, "_b", sequences);
      if (!Wanted(id)) continue;
      const AttentionBatch batch = {sequences, 1, context, num_heads, 1, 64, 576, 512};
      const double seconds = AttentionSeconds(batch, machine.multiprocessors, family.kernels);
      bench::Print({id, 1e-9 * batch.kv_bytes() / seconds, "GB/s", "copy", machine.copy_gbs});
    }
  }
}

// In microseconds, next to the time to read K and V.
void DecodeSmall(const Machine& machine, const Family& family) {
  for (const uint32_t sequences : {1u, 2u, 4u, 8u}) {
    for (const int32_t context : {512, 1024, 4096}) {
      const std::string id =
          absl::StrCat(family.prefix, "decode_small_b", sequences, "_kv", context);
      if (!Wanted(id)) continue;
      const AttentionBatch batch = {sequences, 1, context, 32, 8, 16};
      bench::Print({id, 1e6 * AttentionSeconds(batch, machine.multiprocessors, family.kernels),
                    "us", "read", 1e-3 * batch.kv_bytes() / machine.read_gbs});
    }
  }
}

// Large batches, contexts of different lengths, and fp8 pools.
void DecodeKinds(const Machine& machine, const Family& family) {
  const std::string start = absl::StrCat(family.prefix, "decode_");
  PrintDecode(absl::StrCat(start, "many_kv4096_b128"), {128, 1, 4096, 32, 8, 16}, machine, family);
  PrintDecode(absl::StrCat(start, "many_kv2048_b256"), {256, 1, 2048, 32, 8, 16}, machine, family);
  for (const uint32_t sequences : {8u, 64u}) {
    AttentionBatch batch = {sequences, 1, 4096, 32, 8, 16};
    batch.lengths = Lengths::kRagged;
    PrintDecode(absl::StrCat(start, "ragged_kv4096_b", sequences), batch, machine, family);
  }
  for (const uint32_t tokens : {16u, 64u}) {
    for (const int32_t context : {4096, 16384}) {
      const uint32_t sequences = context == 4096 ? 128 : 32;  // 1 GiB of K and V.
      AttentionBatch batch = {sequences, 1, context, 32, 8, tokens};
      batch.type = ElementType::kFloat8E4M3;
      PrintDecode(absl::StrCat(start, "fp8_p", tokens, "_kv", context, "_b", sequences), batch,
                  machine, family);
    }
  }
}

// A few queries of each sequence, in microseconds, next to the time to read K and V.
void ShortChunks(const Machine& machine, const Family& family) {
  for (const int32_t queries : {4, 16, 64}) {
    for (const uint32_t sequences : {1u, 16u}) {
      const std::string id = absl::StrCat(family.prefix, "chunk_", queries, "_kv4096_b", sequences);
      if (!Wanted(id)) continue;
      const AttentionBatch batch = {sequences, queries, 4096, 32, 8, 16};
      bench::Print({id, 1e6 * AttentionSeconds(batch, machine.multiprocessors, family.kernels),
                    "us", "read", 1e-3 * batch.kv_bytes() / machine.read_gbs});
    }
  }
}

// The host's work before a step's first kernel, in microseconds, next to one layer's attention.
void Plans(const Machine& machine) {
  struct Shape {
    const char* name;
    AttentionBatch batch;
  };
  for (const Shape& shape :
       {Shape{"decode_b1", {1, 1, 4096, 32, 8, 16}}, Shape{"decode_b64", {64, 1, 4096, 32, 8, 16}},
        Shape{"decode_b256", {256, 1, 2048, 32, 8, 16}},
        Shape{"prefill_512", {1, 512, 512, 32, 8, 16}}}) {
    const std::string plan = absl::StrCat("gpu_plan_", shape.name);
    const std::string upload = absl::StrCat("gpu_plan_upload_", shape.name);
    if (!Wanted(plan) && !Wanted(upload)) continue;
    const PlanSeconds seconds = TimePlan(shape.batch, machine.multiprocessors);
    const double attention =
        1e6 * AttentionSeconds(shape.batch, machine.multiprocessors, AttentionKernels::kSm80);
    bench::Print({plan, 1e6 * seconds.plan, "us", "attention", attention});
    bench::Print({upload, 1e6 * seconds.upload, "us", "attention", attention});
  }
}

// The floating point operations of the visible pairs.
void Prefill(const Machine& machine, const Family& family) {
  struct Shape {
    const char* name;
    int32_t queries;
    int32_t context;
    uint32_t sequences;
  };
  for (const Shape& shape :
       {Shape{"1024", 1024, 1024, 8}, Shape{"4096", 4096, 4096, 4}, Shape{"8192", 8192, 8192, 2},
        Shape{"16384", 16384, 16384, 1}, Shape{"append_512_4096", 512, 4096, 16},
        Shape{"append_512_65536", 512, 65536, 4}}) {
    for (const uint32_t tokens : {16u, 64u}) {
      const std::string id = absl::StrCat(family.prefix, "prefill_bf16_", shape.name, "_p", tokens);
      if (!Wanted(id)) continue;
      const double seconds =
          AttentionSeconds({shape.sequences, shape.queries, shape.context, 32, 8, tokens},
                           machine.multiprocessors, family.kernels);
      const double pairs =
          static_cast<double>(shape.queries) * (shape.context - (shape.queries - 1) / 2.0);
      const double operations = 4.0 * kHeadDim * 32 * pairs * shape.sequences;
      const bool hopper = family.kernels == AttentionKernels::kHopper;
      bench::Print({id, 1e-12 * operations / seconds, "TFLOP/s",
                    hopper ? "nominal peak of wgmma" : "mma_sync",
                    hopper ? machine.nominal_tflops : machine.mma_tflops});
    }
  }
}

// Between pinned host memory and the GPU, in random slots, next to one large copy in the same
// direction; and within the GPU.
void BlockCopy(const Machine& machine) {
  constexpr uint64_t kPoolBytes = uint64_t{1} << 30;
  constexpr uint64_t kCopiedBytes = kPoolBytes / 2;
  void* pinned = nullptr;
  PAGODA_CUDA_CHECK(cudaMallocHost(&pinned, kPoolBytes));
  std::memset(pinned, 7, kPoolBytes);
  auto* host = static_cast<std::byte*>(pinned);
  DeviceArray<std::byte> device(kPoolBytes);
  FillRandom(device.data(), kPoolBytes);
  const auto large = [&](cudaMemcpyKind kind) {
    return 1e-9 * kCopiedBytes / StreamSeconds(1, [&](Stream stream, int) {
             const bool up = kind == cudaMemcpyHostToDevice;
             PAGODA_CUDA_CHECK(cudaMemcpyAsync(up ? device.data() : host, up ? host : device.data(),
                                               kCopiedBytes, kind, stream));
           });
  };
  const double large_up = large(cudaMemcpyHostToDevice);
  const double large_down = large(cudaMemcpyDeviceToHost);
  for (const uint64_t kib : {64u, 256u, 1024u, 2048u}) {
    const uint64_t slot_bytes = kib << 10;
    const auto slots = static_cast<uint32_t>(kPoolBytes / slot_bytes);
    std::vector<uint32_t> from(slots);
    std::iota(from.begin(), from.end(), 0);
    std::vector<uint32_t> to = from;
    std::shuffle(from.begin(), from.end(), std::mt19937(3));
    std::shuffle(to.begin(), to.end(), std::mt19937(4));
    std::vector<SlotCopy> copies;
    for (uint32_t i = 0; i < kCopiedBytes / slot_bytes; ++i) copies.push_back({from[i], to[i]});
    BlockCopyParams params = {
        .source_slots = slots, .target_slots = slots, .slot_bytes = slot_bytes, .copies = copies};
    const auto across = [&](const char* way, std::byte* source, std::byte* target, double yard) {
      const std::string id = absl::StrCat("gpu_block_copy_", way, "_", kib, "k");
      if (!Wanted(id)) return;
      params.source = source;
      params.target = target;
      const double seconds =
          StreamSeconds(1, [&](Stream stream, int) { Require(CopyBlocksAcross(params, stream)); });
      bench::Print({id, 1e-9 * kCopiedBytes / seconds, "GB/s", "one_large_copy", yard});
    };
    across("to_gpu", host, device.data(), large_up);
    across("to_host", device.data(), host, large_down);
    const std::string id = absl::StrCat("gpu_block_copy_within_", kib, "k");
    if (!Wanted(id)) continue;
    DeviceArray<std::byte> other(kPoolBytes);
    DeviceArray<SlotCopy> device_copies(copies);
    params.source = device.data();
    params.target = other.data();
    params.copies = device_copies.span();
    const double seconds =
        GraphSeconds(4, [&](Stream stream, int) { Require(CopyBlocks(params, stream)); });
    bench::Print({id, 2e-9 * kCopiedBytes / seconds, "GB/s", "copy", machine.copy_gbs});
  }
  PAGODA_CUDA_CHECK(cudaFreeHost(pinned));
}

}  // namespace
}  // namespace pagoda::kernels::cuda

int main(int argc, char** argv) {
  namespace cuda = pagoda::kernels::cuda;
  if (const std::string why = cuda::WhyNoDevice(); !why.empty()) {
    std::printf("skipped: %s\n", why.c_str());
    return 77;
  }
  cuda::wanted.assign(argv + 1, argv + argc);
  const cuda::Machine machine = cuda::Measure();
  for (const cuda::Family& family : cuda::Families(machine)) {
    cuda::Decode(machine, family);
    cuda::DecodeSmall(machine, family);
    cuda::DecodeKinds(machine, family);
    cuda::ShortChunks(machine, family);
    cuda::Prefill(machine, family);
    cuda::DecodeLatents(machine, family);
  }
  cuda::Plans(machine);
  cuda::BlockCopy(machine);
  return 0;
}

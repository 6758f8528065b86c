// A GPU backend for the engine's tests.
#include <deque>
#include <vector>

#include "base/check.h"
#include "engine/model/cuda/cuda_backend.h"
#include "pools/cuda/memory.h"
#include "tests/base/require.h"
#include "tests/engine/cuda/test_backend.h"

namespace pagoda {
namespace {

class MappedKvMemory final : public KvMemory {
 public:
  std::byte* Allocate(uint64_t bytes) override {
    const cuda::Memory owner = Require(cuda::Memory::Create(/*device=*/0, bytes));
    memory_.push_back(Require(cuda::Memory::FromDescriptor(
        Require(owner.OpenDescriptor()), /*device=*/0, bytes, MemoryAccess::kReadWrite)));
    return reinterpret_cast<std::byte*>(memory_.back().address());
  }
  void Fill(std::byte* target, std::byte value, uint64_t bytes) override {
    const auto address = reinterpret_cast<uint64_t>(target);
    for (cuda::Memory& memory : memory_) {
      if (address < memory.address() || address >= memory.address() + memory.size_bytes()) continue;
      const std::vector<std::byte> values(bytes, value);
      const absl::Status written = memory.Write(address - memory.address(), values);
      PAGODA_CHECK(written.ok(), written.ToString().c_str());
    }
  }

 private:
  std::deque<cuda::Memory> memory_;  // Must outlive its owner's mapping.
};

}  // namespace

std::unique_ptr<KvMemory> MakeTestKvMemory() { return std::make_unique<MappedKvMemory>(); }

std::string WhyNoBackend() {
  static const auto* const status = new absl::Status(CheckCudaBackend(/*device=*/0));
  return status->ok() ? std::string() : std::string(status->message());
}

std::unique_ptr<Backend> MakeTestBackend(ComputeType compute, GpuGraphs graphs,
                                         const FusedChoice& fused) {
  return Require(
      MakeCudaBackend({.device = 0, .compute = compute, .fused = fused, .graphs = graphs}));
}

}  // namespace pagoda

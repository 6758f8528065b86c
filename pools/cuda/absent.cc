// The functions of this folder in a build without CUDA: all return UNAVAILABLE.

#include "absl/status/status.h"
#include "base/check.h"
#include "pools/cuda/device.h"
#include "pools/cuda/memory.h"
#include "pools/cuda/pinned_memory.h"

namespace pagoda::cuda {
namespace {

absl::Status NoCuda() {
  return absl::UnavailableError(
      "this build has no CUDA (PAGODA_CUDA was OFF, or no toolkit found)");
}

// For methods of objects that cannot exist in this build.
void NeverCalled() { PAGODA_CHECK(false, "a build without CUDA has no GPU memory"); }

}  // namespace

absl::StatusOr<DeviceInfo> DescribeDevice(int) { return NoCuda(); }
absl::StatusOr<int> FindDevice(const DeviceUuid&) { return NoCuda(); }

absl::StatusOr<Memory> Memory::Create(int, uint64_t) { return NoCuda(); }
absl::StatusOr<Memory> Memory::FromDescriptor(const FileDescriptor&, int, uint64_t, MemoryAccess) {
  return NoCuda();
}
Memory::Memory(Memory&&) noexcept { NeverCalled(); }
Memory::~Memory() = default;
absl::StatusOr<FileDescriptor> Memory::OpenDescriptor() const { return NoCuda(); }
absl::Status Memory::Write(uint64_t, absl::Span<const std::byte>) { return NoCuda(); }
absl::Status Memory::Read(uint64_t, absl::Span<std::byte>) const { return NoCuda(); }

absl::StatusOr<PinnedMemory> PinnedMemory::Register(absl::Span<std::byte>, const Options&) {
  return NoCuda();
}
PinnedMemory::PinnedMemory(PinnedMemory&&) noexcept { NeverCalled(); }
PinnedMemory::~PinnedMemory() = default;

}  // namespace pagoda::cuda

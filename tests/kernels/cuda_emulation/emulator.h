// Runs the GPU's kernels on the host, exactly: every thread of a block is a fiber, and what the
// threads of a warp or block do together happens when all of them have come to it.
//
// What it finds, and a launch then returns an error for:
//  * accesses outside the block's shared memory, or not aligned to their size;
//  * races in shared memory: two threads at one word, one of them writing, without a barrier of
//    their warp or block between them;
//  * the use of what an asynchronous copy brings before the copying thread has waited for it, and
//    such a copy over what others may still read;
//  * threads of a warp that come to different collective operations, or a barrier that a thread
//    has passed by ending.
// Shared memory begins as NaN. Warps run in an order that a seed shuffles. An asynchronous copy
// reads its source when it is waited for, the last moment that hardware may.
// What it cannot find: whatever depends on speed, on the memory model of global memory between
// blocks, or on an instruction that does other than the PTX ISA says.
#ifndef PAGODA_TESTS_KERNELS_CUDA_EMULATION_EMULATOR_H_
#define PAGODA_TESTS_KERNELS_CUDA_EMULATION_EMULATOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace pagoda::kernels::cuda::emulation {

// Where shared memory begins; 0 is no address of it.
inline constexpr uint32_t kSharedBase = 1024;

// What the launches of this thread have met since they were last taken, a line each, at most 20.
std::vector<std::string> TakeProblems();

// The order of warps in the launches of this thread from now on. An odd seed also makes grids of at
// most 3 blocks, so that each has several units of work: kernels go over them in steps of the grid.
void SetSchedule(uint32_t seed);

// Runs the kernel's blocks one after another; returns when all have ended. 0, or 719 (CUDA's
// cudaErrorLaunchFailure) where there was a problem.
int Launch(uint64_t blocks, uint32_t threads, uint32_t shared_bytes,
           const std::function<void()>& kernel);

// What follows is for kernels, of the thread that runs.
struct Place {
  uint32_t thread;
  uint32_t block;
  uint32_t blocks;
};
Place CurrentPlace();

void SyncThreads();
void ReadShared(uint32_t address, void* to, uint32_t bytes);
void WriteShared(uint32_t address, const void* from, uint32_t bytes);
void CopyAsync(uint32_t shared, const void* global, bool present);
void CommitCopies();
void WaitForCopies(uint32_t pending);

// What a lane brings to an exchange of its warp, and takes from it.
struct LaneData {
  uint32_t in[8];
  float sums[4];
  uint32_t out[4];
};
// Waits until all 32 lanes are here; the last one to come runs `exchange` on all of them.
// `operation` is the same in each, else it is a problem.
using Exchange = void (*)(LaneData* lanes);
void Collect(std::string_view operation, LaneData& data, Exchange exchange);

// A row of a matrix, for a warp's load of matrices: read by the lane that runs, for the others.
void ReadMatrixRow(uint32_t address, uint32_t (&words)[4]);

}  // namespace pagoda::kernels::cuda::emulation

#endif  // PAGODA_TESTS_KERNELS_CUDA_EMULATION_EMULATOR_H_

// Runs the GPU's kernels on the host, exactly: every thread of a block is a fiber, and what the
// threads of a warp or block do together happens when all of them have come to it.
//
// What it finds, and a launch then returns an error for:
//  * accesses outside the block's shared memory, or not aligned to their size;
//  * races in shared memory: two threads at one word, one of them writing, without a barrier of
//    their warp or of threads of the block, or one in shared memory, between them;
//  * the use of what an asynchronous copy brings before the copying thread has waited for it, or a
//    box before its barrier has told of it, and such a copy over what others may still read;
//  * for the asynchronous proxy (products of warpgroups, boxes), what a thread stored and did not
//    fence;
//  * for products of warpgroups, sums and left matrices in registers that are read (they are NaN
//    then) or written while they are under way, matrices in shared memory that are written then, a
//    group of them without a fence of its registers, warps of a warpgroup that start others;
//  * threads of a warp that come to different collective operations, or a barrier that a thread
//    has passed by ending, or that waits for bytes that do not come; arrivals that are too many;
//  * registers of warpgroups that do not add up to what the block began with.
// Shared memory begins as NaN. Warps run in an order that a seed shuffles. An asynchronous copy or
// product reads its source when it is waited for, the last moment that hardware may; a box when no
// thread can run, or at a moment that the seed chooses.
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

#include "kernels/cuda/tensor_map.h"
#include "tests/kernels/cuda_emulation/products.h"

namespace pagoda::kernels::cuda::emulation {

// Where shared memory begins; 0 is no address of it.
inline constexpr uint32_t kSharedBase = 1024;

// What the launches of this thread have met since they were last taken, a line each, at most 20.
std::vector<std::string> TakeProblems();

// The order of warps in the launches of this thread from now on. An odd seed also makes grids of at
// most 3 blocks, so that each has several units of work: kernels go over them in steps of the grid.
void SetSchedule(uint32_t seed);

// What a block may have at most, in the launches of this thread from now on: a Hopper's 227 KiB if
// nothing is said.
void SetMostSharedBytes(uint32_t bytes);
uint32_t MostSharedBytes();

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
void InitBarrier(uint32_t address, uint32_t arrivals);
void FenceBarriers();
void ArriveExpecting(uint32_t address, uint32_t bytes);
void WaitFor(uint32_t address, uint32_t parity);
void SyncSome(uint32_t id, uint32_t threads);
void StartBox(uint32_t shared, const TensorMap& map, const uint32_t (&place)[4], uint32_t barrier);
void FenceAsync();
void SetRegisters(uint32_t registers, bool more);
void ReportProblem(const std::string& text);
// Calls it with the block's products and the warp of the thread that runs.
void OfWarp(const std::function<void(Products& products, uint32_t warp)>& work);

// How many products of warpgroups the launches of this thread have started, by warps.
uint64_t CountProducts();

// What a lane brings to an exchange of its warp, and takes from it.
struct LaneData {
  uint32_t in[8];
  float sums[4];
  uint32_t out[4];
  float* target;           // Sums of a product of a warpgroup,
  const uint32_t* source;  // and its left matrix.
};
// Waits until all 32 lanes are here; the last one to come runs `exchange` on all of them.
// `operation` is the same in each, else it is a problem.
using Exchange = void (*)(LaneData* lanes);
void Collect(std::string_view operation, LaneData& data, Exchange exchange);

// A row of a matrix, for a warp's load of matrices: read by the lane that runs, for the others.
void ReadMatrixRow(uint32_t address, uint32_t (&words)[4]);

}  // namespace pagoda::kernels::cuda::emulation

#endif  // PAGODA_TESTS_KERNELS_CUDA_EMULATION_EMULATOR_H_

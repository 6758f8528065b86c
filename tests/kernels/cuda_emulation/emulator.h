// Runs the GPU kernels on the host, exactly. Every thread of a block is a fiber. An operation of
// several threads of a warp or block happens when all of them have reached it.
//
// It detects the following problems, and the launch then returns an error:
//  * accesses outside the block's shared memory, or not aligned to their size;
//  * races in shared memory: two threads access one word, at least one of them writes, and between
//    the accesses there is no barrier of their warp, of threads of the block, or in shared memory;
//  * use of bytes of an asynchronous copy before the copying thread has waited for it; use of a box
//    before its barrier's phase has ended; and such a copy over bytes that others can still read;
//  * for the asynchronous proxy (products of warpgroups, boxes): bytes that a thread stored
//    without a fence;
//  * for products of warpgroups: reads (NaN) or writes of sums and left matrices in registers while
//    the product is in flight, writes of its matrices in shared memory, a group of products without
//    a fence of its registers, and warps of a warpgroup that start different products;
//  * threads of a warp that reach different collective operations; a barrier that a thread has
//    passed by ending; a barrier that waits for bytes that do not come; too many arrivals; arrivals
//    that are left over at the block's end;
//  * registers of warpgroups whose sum differs from that at the block's start.
// Shared memory begins as NaN. Warps run in an order that a seed shuffles. An asynchronous copy or
// product reads its source when a thread waits for it, which is the last moment that hardware
// allows. A box is copied when no thread can run, or at a moment that the seed chooses.
// It cannot detect problems of speed, of the memory model of global memory between blocks, or of an
// instruction that differs from the PTX ISA.
#ifndef PAGODA_TESTS_KERNELS_CUDA_EMULATION_EMULATOR_H_
#define PAGODA_TESTS_KERNELS_CUDA_EMULATION_EMULATOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/device/tensor_map.h"
#include "tests/kernels/cuda_emulation/products.h"

namespace pagoda::kernels::cuda::emulation {

// The start of shared memory; 0 is not an address in it.
inline constexpr uint32_t kSharedBase = 1024;

// Returns and clears the problems of this thread's launches, one line each, at most 20.
std::vector<std::string> TakeProblems();

// Sets the order of warps in this thread's following launches. An odd seed also limits grids to 3
// blocks, so that each block has several units of work: kernels walk them in steps of the grid.
void SetSchedule(uint32_t seed);

// Sets the shared memory limit of a block in this thread's following launches. The default is a
// Hopper's 227 KiB.
void SetMostSharedBytes(uint32_t bytes);
uint32_t MostSharedBytes();

// Runs the kernel's blocks one after another, and returns when all have ended. Returns 0, or 719
// (CUDA's cudaErrorLaunchFailure) if there was a problem. While this thread captures (capture.h),
// keeps a copy of the kernel instead, and returns 0.
int Launch(uint64_t blocks, uint32_t threads, uint32_t shared_bytes,
           const std::function<void()>& kernel);

// The functions below are for kernels. They act for the thread that runs.
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
void ArriveSome(uint32_t id, uint32_t threads);
void StartBox(uint32_t shared, const TensorMap& map, const uint32_t (&place)[4], uint32_t barrier);
void FenceAsync();
void SetRegisters(uint32_t registers, bool more);
void ReportProblem(const std::string& text);
// Calls the function with the block's products and the warp of the running thread.
void OfWarp(const std::function<void(Products& products, uint32_t warp)>& work);

// The number of products of single warps (mma.sync) that this thread's launches have made.
inline thread_local uint64_t warp_products = 0;

// The number of warpgroup products that this thread's launches have started, counted by warps.
uint64_t CountProducts();

// The input and output of a lane in an exchange of its warp.
struct LaneData {
  uint32_t in[8];
  float sums[4];
  uint32_t out[4];
  float* target;           // The sums of a warpgroup's product.
  const uint32_t* source;  // The left matrix of that product.
};
// Waits until all 32 lanes are here. The last lane to arrive runs `exchange` for all of them. It is
// a problem if `operation` differs between lanes.
using Exchange = void (*)(LaneData* lanes);
void Collect(std::string_view operation, LaneData& data, Exchange exchange);

// A row of a matrix, for a warp's load of matrices. The running lane reads it for the others.
void ReadMatrixRow(uint32_t address, uint32_t (&words)[4]);

}  // namespace pagoda::kernels::cuda::emulation

#endif  // PAGODA_TESTS_KERNELS_CUDA_EMULATION_EMULATOR_H_

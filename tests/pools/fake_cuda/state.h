// What the parts of the fake driver share.
#ifndef PAGODA_TESTS_POOLS_FAKE_CUDA_STATE_H_
#define PAGODA_TESTS_POOLS_FAKE_CUDA_STATE_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "tests/pools/fake_cuda/fake_cuda.h"

namespace fake_cuda {

struct Settings {
  int devices = 1;
  int first_device = 0;
  uint64_t memory_bytes = uint64_t{256} << 20;
  uint64_t pinned_bytes = uint64_t{1024} << 20;
  unsigned delay_us = 0;
  bool same_addresses = true;
  bool refuse_rows_within = false;
};
Settings GetSettings();
void ChangeSettings(const std::function<void(Settings&)>& change);

// What a call begins with: counts it, and returns the failure that is planted for it;
// NOT_INITIALIZED before cuInit.
CUresult Enter(const char* call);
// The same for calls that need a current context; and the error of a device that is lost.
CUresult EnterContext(const char* call);
// From now on every call that needs a context returns this.
void Lose(CUresult error);
CUresult Lost();

// --- Memory ---

enum class Place { kDevice, kPinned, kPageable, kBad };
// Of a range that is read or written. kBad: partly one and partly the other, or not accessible.
Place PlaceOf(uint64_t address, uint64_t bytes, bool for_writing);
// Copies between ranges that were good when they were looked at. False where one is so no more.
bool CopyBytes(uint64_t target, uint64_t source, uint64_t bytes);
void FillUse(FakeCudaUse& use);

// --- Streams ---

void FillStreamUse(FakeCudaUse& use);
// Work of the null stream, which no other stream waits for.
void PushToNullStream(std::function<CUresult()> work);
void FinishNullStream();
// How late the next copy begins, and whether it is the one that fails (0: it does not).
unsigned NextDelay();
CUresult NextCopyFails();
// Waits while streams are held.
void WaitWhileHeld();
uint64_t Contexts();

}  // namespace fake_cuda

#define FAKE_CUDA_ENTER(call) \
  if (const CUresult planted = fake_cuda::Enter(call); planted != CUDA_SUCCESS) return planted
#define FAKE_CUDA_ENTER_CONTEXT(call)                                                  \
  if (const CUresult planted = fake_cuda::EnterContext(call); planted != CUDA_SUCCESS) \
  return planted

#endif  // PAGODA_TESTS_POOLS_FAKE_CUDA_STATE_H_

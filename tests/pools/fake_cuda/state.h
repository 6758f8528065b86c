// The state that the parts of the fake driver share.
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

// The start of a call: counts it, and returns its planned failure, or NOT_INITIALIZED before
// cuInit.
CUresult Enter(const char* call);
// The same for calls that need a current context. Also returns the error of a lost device.
CUresult EnterContext(const char* call);
// Makes every later call that needs a context return this code.
void Lose(CUresult error);
CUresult Lost();

// --- Memory ---

enum class Place { kDevice, kPinned, kPageable, kBad };
// The kind of a range that is read or written. kBad: of mixed kinds, or not accessible.
Place PlaceOf(uint64_t address, uint64_t bytes, bool for_writing);
// Copies between ranges that were checked before. Returns false if one has become invalid.
bool CopyBytes(uint64_t target, uint64_t source, uint64_t bytes);
void FillUse(FakeCudaUse& use);

// --- Streams ---

void FillStreamUse(FakeCudaUse& use);
// Work of the null stream. No other stream waits for it.
void PushToNullStream(std::function<CUresult()> work);
void FinishNullStream();
// The delay of the next copy, and the code if it must fail (0: it does not).
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

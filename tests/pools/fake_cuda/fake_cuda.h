// The test controls of the fake driver. Tests find them by dlsym in libcuda.so.1. Environment
// variables, for processes that a test cannot control directly:
//   FAKE_CUDA_DEVICES       devices; default 1
//   FAKE_CUDA_FIRST_DEVICE  identity of the first device (its index in other processes); default 0
//   FAKE_CUDA_MEMORY_MIB    memory of a device; default 256
//   FAKE_CUDA_PINNED_MIB    host memory that can be registered; default 1024
//   FAKE_CUDA_DELAY_US      largest delay of a copy on a stream, or of work of the null stream
//   FAKE_CUDA_FAIL          "CALL:NTH:CODE": see fakeCudaFail
#ifndef PAGODA_TESTS_POOLS_FAKE_CUDA_FAKE_CUDA_H_
#define PAGODA_TESTS_POOLS_FAKE_CUDA_FAKE_CUDA_H_

#include <stdint.h>

extern "C" {

// The driver's objects that the process holds now.
struct FakeCudaUse {
  uint64_t allocated_bytes;
  uint64_t mapped_bytes;
  uint64_t reserved_bytes;
  uint64_t registered_bytes;
  uint64_t contexts;
  uint64_t streams;
  uint64_t events;
  uint64_t null_stream_work;  // Given and not ended.
};
FakeCudaUse fakeCudaUse();

// The number of calls of that name since the start.
uint64_t fakeCudaCalls(const char* call);

// Restores all settings of the start, and restores a lost device.
void fakeCudaReset();
// The nth next call of that name returns the code; 0: every call does.
void fakeCudaFail(const char* call, int nth, int code);
// The nth next copy that runs on a stream fails with the code, and the device is lost.
void fakeCudaLoseDevice(int nth, int code);
// Each copy on a stream, and all work of the null stream, begins with a random delay up to this
// one.
void fakeCudaDelay(unsigned max_microseconds, unsigned seed);
// Holds all streams except the null stream, or releases them.
void fakeCudaHold(int held);
void fakeCudaLimits(uint64_t memory_bytes, uint64_t pinned_bytes);
// Whether the device uses registered host memory by the host's addresses.
void fakeCudaSameAddresses(int same);
// Whether copies of rows within the device are refused. The documentation allows that.
void fakeCudaRefuseRowsWithin(int refuse);
}

#endif  // PAGODA_TESTS_POOLS_FAKE_CUDA_FAKE_CUDA_H_

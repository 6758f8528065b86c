// What a test sets and asks of the fake driver, which is found by dlsym in libcuda.so.1. In the
// environment, for a process that cannot be asked:
//   FAKE_CUDA_DEVICES       devices, 1 without it
//   FAKE_CUDA_FIRST_DEVICE  the identity of the first, 0 without it: other processes' index
//   FAKE_CUDA_MEMORY_MIB    memory of a device, 256 without it
//   FAKE_CUDA_PINNED_MIB    host memory that can be registered, 1024 without it
//   FAKE_CUDA_DELAY_US      the most that a copy on a stream, or work of the null stream, is late
//   FAKE_CUDA_FAIL          "CALL:NTH:CODE": fakeCudaFail
#ifndef PAGODA_TESTS_POOLS_FAKE_CUDA_FAKE_CUDA_H_
#define PAGODA_TESTS_POOLS_FAKE_CUDA_FAKE_CUDA_H_

#include <stdint.h>

extern "C" {

// What the process has of the driver now.
struct FakeCudaUse {
  uint64_t allocated_bytes;
  uint64_t mapped_bytes;
  uint64_t reserved_bytes;
  uint64_t registered_bytes;
  uint64_t contexts;
  uint64_t streams;
  uint64_t events;
  uint64_t null_stream_work;  // What it was given and has not ended.
};
FakeCudaUse fakeCudaUse();

// Calls of that name since the start.
uint64_t fakeCudaCalls(const char* call);

// All settings as they were at the start, and a lost device is found again.
void fakeCudaReset();
// The nth call of that name from now on returns the code; 0: every one.
void fakeCudaFail(const char* call, int nth, int code);
// The nth copy from now on that runs on a stream fails with the code, and the device is lost.
void fakeCudaLoseDevice(int nth, int code);
// Each copy on a stream, and all work of the null stream, begins up to so much late, at random.
void fakeCudaDelay(unsigned max_microseconds, unsigned seed);
// Streams but the null stream begin nothing more; or go on.
void fakeCudaHold(int held);
void fakeCudaLimits(uint64_t memory_bytes, uint64_t pinned_bytes);
// Whether the device takes registered host memory by the host's addresses.
void fakeCudaSameAddresses(int same);
// Whether copies of rows within the device are refused, as the documentation lets a driver do.
void fakeCudaRefuseRowsWithin(int refuse);
}

#endif  // PAGODA_TESTS_POOLS_FAKE_CUDA_FAKE_CUDA_H_

// Exit status 77 without a device: a test that has not run has not passed.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/kernels/cuda/device_memory.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (const std::string why = pagoda::kernels::cuda::WhyNoDevice(); !why.empty()) {
    std::printf("skipped: %s\n", why.c_str());
    return 77;
  }
  return RUN_ALL_TESTS();
}

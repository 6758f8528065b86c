#include <optional>

#include "engine/serve/program.h"
#include "engine/gpu_self_test.h"

int main(int argc, char** argv) {
  if (const std::optional<int> tested = pagoda::GpuSelfTestMain(argc, argv); tested.has_value()) {
    return *tested;
  }
  return pagoda::RunPagodaEngine(argc, argv);
}

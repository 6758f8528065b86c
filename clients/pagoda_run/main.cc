#include <optional>

#include "clients/pagoda_run/program.h"
#include "engine/gpu_self_test.h"
#include "engine/structured/grammar_process.h"

int main(int argc, char** argv) {
  for (const auto& process_main : {pagoda::GpuSelfTestMain, pagoda::GrammarProcessMain}) {
    if (const std::optional<int> status = process_main(argc, argv); status.has_value()) {
      return *status;
    }
  }
  return pagoda::RunPagodaRun(argc, argv);
}

#include <optional>
#include <string_view>

#include "engine/gpu_self_test.h"
#include "engine/serve/doors/doors.h"
#include "engine/serve/program.h"
#include "engine/structured/grammar_process.h"

int main(int argc, char** argv) {
  for (const auto& process_main : {pagoda::GpuSelfTestMain, pagoda::GrammarProcessMain}) {
    if (const std::optional<int> status = process_main(argc, argv); status.has_value()) {
      return *status;
    }
  }
  if (argc == 2 && std::string_view(argv[1]) == "--child") return pagoda::RunAsChild();
  return pagoda::RunPagodaEngine(argc, argv);
}

// The speed of the CPU's kernels, compared with the most that the machine can do. deploy/bench.sh
// kernels runs it.
#include <cstdio>
#include <string>
#include <string_view>

#include "tests/bench/kernels/attention_bench.h"
#include "tests/bench/kernels/cache_bench.h"

int main(int argc, char** argv) {
  const bool smoke = argc > 1 && std::string_view(argv[1]) == "--smoke";
  const int first = smoke ? 2 : 1;
  if (argc > first + 1 || (argc > first && argv[first][0] == '-')) {
    std::fprintf(
        stderr,
        "usage: %s [--smoke] [FIGURE]: all figures, or those whose ids begin so; --smoke: at "
        "their smallest, to see that they are there\n",
        argv[0]);
    return 2;
  }
  const std::string_view prefix = argc > first ? argv[first] : "";
  const auto wanted = [&](const std::string& id) { return id.starts_with(prefix); };
  pagoda::bench::CacheBenchOptions cache{.wanted = wanted};
  if (smoke) {
    cache.pool_bytes = 8 << 20;
    cache.call_bytes = 2 << 20;
  }
  pagoda::bench::PrintAttentionFigures({.wanted = wanted, .smoke = smoke});
  pagoda::bench::PrintCacheFigures(cache);
}

#include "tests/bench/figure.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

namespace pagoda::bench {

double MedianSeconds(const std::function<double()>& run) {
  std::vector<double> seconds(kRepetitions);
  for (double& s : seconds) s = run();
  return Percentile(std::move(seconds), 0.5);
}

std::pair<double, double> InterleavedMedians(const std::function<double()>& first,
                                             const std::function<double()>& second) {
  std::vector<double> firsts(kRepetitions), seconds(kRepetitions);
  for (int i = 0; i < kRepetitions; ++i) {
    firsts[i] = first();
    seconds[i] = second();
  }
  return {Percentile(std::move(firsts), 0.5), Percentile(std::move(seconds), 0.5)};
}

double Seconds(const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double CpuSeconds() {
  rusage use;
  if (getrusage(RUSAGE_SELF, &use) != 0) std::abort();  // A process knows its use.
  const auto seconds = [](const timeval& time) { return double(time.tv_sec) + time.tv_usec / 1e6; };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

double Percentile(std::vector<double> numbers, double share) {
  const auto index = static_cast<size_t>(share * static_cast<double>(numbers.size()));
  const auto nth = numbers.begin() + static_cast<ptrdiff_t>(std::min(index, numbers.size() - 1));
  std::nth_element(numbers.begin(), nth, numbers.end());
  return *nth;
}

void Print(const Figure& figure) {
  std::printf(
      "{\"figure\": \"%s\", \"value\": %.4g, \"unit\": \"%s\", \"yardstick\": \"%s\", "
      "\"yardstick_value\": %.4g, \"ratio\": ",
      figure.id.c_str(), figure.value, figure.unit.c_str(), figure.yardstick.c_str(),
      figure.yardstick_value);
  if (figure.yardstick_value == 0) {
    std::puts("null}");  // JSON has no infinity.
  } else {
    std::printf("%.4g}\n", figure.value / figure.yardstick_value);
  }
  std::fflush(stdout);
}

}  // namespace pagoda::bench

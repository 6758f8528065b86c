#include "tests/bench/figure.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

namespace pagoda::bench {

double MedianSeconds(const std::function<double()>& run) {
  std::vector<double> seconds(kRepetitions);
  for (double& s : seconds) s = run();
  std::nth_element(seconds.begin(), seconds.begin() + kRepetitions / 2, seconds.end());
  return seconds[kRepetitions / 2];
}

double Seconds(const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void Print(const Figure& figure) {
  std::printf(
      "{\"figure\": \"%s\", \"value\": %.4g, \"unit\": \"%s\", \"yardstick\": \"%s\", "
      "\"yardstick_value\": %.4g, \"ratio\": %.4g}\n",
      figure.id.c_str(), figure.value, figure.unit.c_str(), figure.yardstick.c_str(),
      figure.yardstick_value, figure.value / figure.yardstick_value);
  std::fflush(stdout);
}

}  // namespace pagoda::bench

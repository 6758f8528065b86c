// One line of a benchmark's output: a figure next to a yardstick that was measured in the same run.
#ifndef PAGODA_TESTS_BENCH_FIGURE_H_
#define PAGODA_TESTS_BENCH_FIGURE_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace pagoda::bench {

// Repetitions of every measurement. The median is reported.
inline constexpr int kRepetitions = 9;

// The median over kRepetitions calls of `run`. `run` returns the seconds that count, without its
// preparation.
double MedianSeconds(const std::function<double()>& run);

// The medians of the values that kRepetitions calls of each return. The two alternate, so that a
// disturbance affects both.
std::pair<double, double> InterleavedMedians(const std::function<double()>& first,
                                             const std::function<double()>& second);

// The seconds that one call of `body` takes.
double Seconds(const std::function<void()>& body);

// The processor time that this process has taken so far.
double CpuSeconds();

// The number below which `share` of the numbers lie: 0.5 gives the median. REQUIRES: there is at
// least one number.
double Percentile(std::vector<double> numbers, double share);

struct Figure {
  std::string id;
  double value;
  std::string unit;
  std::string yardstick;
  double yardstick_value;  // In the same unit.
};

// Prints the figure as one JSON object on a line of standard output.
void Print(const Figure& figure);

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_FIGURE_H_

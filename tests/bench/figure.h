// One line of a benchmark's output: a figure beside a yardstick that was measured in the same run.
#ifndef PAGODA_TESTS_BENCH_FIGURE_H_
#define PAGODA_TESTS_BENCH_FIGURE_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace pagoda::bench {

// Repetitions of every measurement; what is reported is their median.
inline constexpr int kRepetitions = 9;

// Median over kRepetitions of the seconds that one call of `run` takes, less what `run` says it
// spent on preparation. `run` returns the seconds that count.
double MedianSeconds(const std::function<double()>& run);

// Medians of what kRepetitions calls of each return. The two take turns, so that what disturbs one
// disturbs the other.
std::pair<double, double> InterleavedMedians(const std::function<double()>& first,
                                             const std::function<double()>& second);

// The seconds that one call of `body` takes.
double Seconds(const std::function<void()>& body);

// The number below which `share` of the numbers lie: 0.5 is the median. REQUIRES: there is one.
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

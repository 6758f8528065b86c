// Two measurements that alternate, so that a disturbance affects both.
#ifndef PAGODA_TESTS_BENCH_SERVICE_ROUNDS_H_
#define PAGODA_TESTS_BENCH_SERVICE_ROUNDS_H_

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace pagoda::bench {

// Measures for a short while. Each call returns the same kinds of numbers, such as a p50 and a p99.
using Slice = std::function<std::vector<double>()>;

// Medians over the rounds, one for each number that a slice returns.
struct Compared {
  std::vector<double> value;
  std::vector<double> yardstick;
};

// A round is a slice of the first measurement, then a slice of the second. A round is void if
// processes other than `own` took more than a fifth of a processor while it ran. Void rounds are
// repeated, up to three times `rounds` in all. If too many are void even then, the least disturbed
// ones count. Prints on standard error, under the name of `what`, how many were void. REQUIRES:
// rounds > 0.
Compared RunRounds(const std::string& what, int rounds, const std::vector<pid_t>& own,
                   const Slice& value, const Slice& yardstick);

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_SERVICE_ROUNDS_H_

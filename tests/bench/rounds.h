// Two measurements that take turns, so that what disturbs one disturbs the other.
#ifndef PAGODA_TESTS_BENCH_ROUNDS_H_
#define PAGODA_TESTS_BENCH_ROUNDS_H_

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace pagoda::bench {

// Measures for a short while; returns the same numbers each time, such as a p50 and a p99.
using Slice = std::function<std::vector<double>()>;

// Medians over the rounds, one for each number of a slice.
struct Compared {
  std::vector<double> value;
  std::vector<double> yardstick;
};

// A round is a slice of the one, then a slice of the other. It is void where other processes than
// `own` took more than a fifth of a processor while it ran, and is then run again, in all at most
// three times as many rounds as are asked for. Where too many were void for that, the least
// disturbed ones count. Says on standard error, under the name of `what`, how many were void.
// REQUIRES: rounds > 0.
Compared RunRounds(const std::string& what, int rounds, const std::vector<pid_t>& own,
                   const Slice& value, const Slice& yardstick);

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_ROUNDS_H_

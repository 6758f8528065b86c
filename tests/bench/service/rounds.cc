#include "tests/bench/service/rounds.h"

#include <algorithm>
#include <cstdio>

#include "tests/bench/figure.h"
#include "tests/bench/service/process_use.h"

namespace pagoda::bench {
namespace {

constexpr double kMostForeignProcessors = 0.2;

struct Round {
  double foreign_processors = 0;
  std::vector<double> value;
  std::vector<double> yardstick;
};

Round RunRound(ForeignUse& foreign, const Slice& value, const Slice& yardstick) {
  Round round;
  foreign.Take();
  const double seconds = Seconds([&] {
    round.value = value();
    round.yardstick = yardstick();
  });
  round.foreign_processors = foreign.Take() / seconds;
  return round;
}

std::vector<double> Medians(const std::vector<Round>& rounds, std::vector<double> Round::*numbers) {
  std::vector<double> medians;
  for (size_t i = 0; i < (rounds[0].*numbers).size(); ++i) {
    std::vector<double> column;
    for (const Round& round : rounds) column.push_back((round.*numbers)[i]);
    medians.push_back(Percentile(std::move(column), 0.5));
  }
  return medians;
}

}  // namespace

Compared RunRounds(const std::string& what, int rounds, const std::vector<pid_t>& own,
                   const Slice& value, const Slice& yardstick) {
  ForeignUse foreign(own);
  std::vector<Round> done;
  int good = 0;
  while (good < rounds && static_cast<int>(done.size()) < 3 * rounds) {
    done.push_back(RunRound(foreign, value, yardstick));
    if (done.back().foreign_processors <= kMostForeignProcessors) ++good;
  }
  std::stable_sort(done.begin(), done.end(), [](const Round& a, const Round& b) {
    return a.foreign_processors < b.foreign_processors;
  });
  const int run = static_cast<int>(done.size());
  done.resize(rounds);
  std::fprintf(stderr,
               "%s: %d rounds, %d of them void; in those that count others took up to %.2f "
               "processors\n",
               what.c_str(), run, run - good, done.back().foreign_processors);
  return {.value = Medians(done, &Round::value), .yardstick = Medians(done, &Round::yardstick)};
}

}  // namespace pagoda::bench

// Traces for which no policy was made: what the requests look like is drawn at random.
#ifndef PAGODA_TESTS_BENCH_MANAGER_RANDOM_TRACES_H_
#define PAGODA_TESTS_BENCH_MANAGER_RANDOM_TRACES_H_

#include <cstdint>
#include <string>

#include "clients/pagoda_plan/trace/trace.h"

namespace pagoda::bench {

struct RandomTrace {
  std::string about;  // What was drawn: "a cycle of 300 documents of 40, ...".
  Trace trace;
};

// A seed gives the same trace on every machine. It draws one of these, and all its numbers:
//
// * documents: by Zipf's law, with a question behind each; some are replaced now and then;
// * chats: many at once. The next one to speak is the one that waited longest, one of the last
//   ones, any, or mostly one of the last ones and seldom a very old one;
// * a cycle: the same documents again and again, partly in another order, among new ones;
// * branches: attempts from common prefixes, which are hot for a while;
// * phases: two kinds in turn, which can be the same; each phase draws its numbers and contents;
// * a mixture: two of these at once.
//
// 120,000 to 400,000 blocks of 16 tokens are requested. Arrivals are a Poisson process of 1 to 8
// requests a second, which do not wait for replies. Replies have 100 tokens on average.
RandomTrace MakeRandomTrace(uint64_t seed);

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_MANAGER_RANDOM_TRACES_H_

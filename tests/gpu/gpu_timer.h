// Time on a GPU: of graphs that are launched again and again, between CUDA's events.
#ifndef PAGODA_TESTS_GPU_GPU_TIMER_H_
#define PAGODA_TESTS_GPU_GPU_TIMER_H_

#include <functional>

#include "kernels/cuda/stream.h"

namespace pagoda::kernels::cuda {

// The seconds of one call of `enqueue`, which puts work on the stream it gets, with `round` going
// round from 0 to rounds - 1 so that each call finds other memory: all rounds are one graph, which
// is warmed up and then timed `kRepetitions` times; the median.
double GraphSeconds(int rounds, const std::function<void(Stream stream, int round)>& enqueue);

// Likewise without a graph, for what cannot be captured; one event pair around all rounds.
double StreamSeconds(int rounds, const std::function<void(Stream stream, int round)>& enqueue);

inline constexpr int kGraphRepetitions = 21;

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_TESTS_GPU_GPU_TIMER_H_

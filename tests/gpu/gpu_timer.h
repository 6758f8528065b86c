// Measures GPU time between CUDA's events, with graphs that are launched repeatedly.
#ifndef PAGODA_TESTS_GPU_GPU_TIMER_H_
#define PAGODA_TESTS_GPU_GPU_TIMER_H_

#include <functional>

#include "kernels/cuda/device/stream.h"

namespace pagoda::kernels::cuda {

// Returns the seconds of one call of `enqueue`, which puts work on the given stream. `round` goes
// from 0 to rounds - 1, so that each call can use other memory. All rounds are one graph. The graph
// is warmed up, then timed kGraphRepetitions times; the result is from the median.
double GraphSeconds(int rounds, const std::function<void(Stream stream, int round)>& enqueue);

// Does what GraphSeconds does, without a graph, for work that cannot be captured. One pair of
// events around all rounds.
double StreamSeconds(int rounds, const std::function<void(Stream stream, int round)>& enqueue);

inline constexpr int kGraphRepetitions = 21;

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_TESTS_GPU_GPU_TIMER_H_

#include "tests/gpu/gpu_timer.h"

#include <algorithm>
#include <vector>

#include "tests/gpu/cuda_check.h"

namespace pagoda::kernels::cuda {
namespace {

constexpr int kWarmups = 3;

// The median time between two events around each run.
double MedianOf(cudaStream_t stream, const std::function<void()>& run) {
  cudaEvent_t start;
  cudaEvent_t end;
  PAGODA_CUDA_CHECK(cudaEventCreate(&start));
  PAGODA_CUDA_CHECK(cudaEventCreate(&end));
  std::vector<double> seconds;
  for (int i = 0; i < kWarmups + kGraphRepetitions; ++i) {
    PAGODA_CUDA_CHECK(cudaEventRecord(start, stream));
    run();
    PAGODA_CUDA_CHECK(cudaEventRecord(end, stream));
    PAGODA_CUDA_CHECK(cudaEventSynchronize(end));
    float milliseconds = 0;
    PAGODA_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, start, end));
    if (i >= kWarmups) seconds.push_back(milliseconds * 1e-3);
  }
  PAGODA_CUDA_CHECK(cudaEventDestroy(start));
  PAGODA_CUDA_CHECK(cudaEventDestroy(end));
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace

double GraphSeconds(int rounds, const std::function<void(Stream stream, int round)>& enqueue) {
  cudaStream_t stream;
  PAGODA_CUDA_CHECK(cudaStreamCreate(&stream));
  // A kernel's code is loaded at its first launch, which a capture does not allow.
  enqueue(stream, 0);
  PAGODA_CUDA_CHECK(cudaStreamSynchronize(stream));
  PAGODA_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int round = 0; round < rounds; ++round) enqueue(stream, round);
  cudaGraph_t graph;
  cudaGraphExec_t runnable;
  PAGODA_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  PAGODA_CUDA_CHECK(cudaGraphInstantiate(&runnable, graph, 0));
  const double seconds =
      MedianOf(stream, [&] { PAGODA_CUDA_CHECK(cudaGraphLaunch(runnable, stream)); });
  PAGODA_CUDA_CHECK(cudaGraphExecDestroy(runnable));
  PAGODA_CUDA_CHECK(cudaGraphDestroy(graph));
  PAGODA_CUDA_CHECK(cudaStreamDestroy(stream));
  return seconds / rounds;
}

double StreamSeconds(int rounds, const std::function<void(Stream stream, int round)>& enqueue) {
  cudaStream_t stream;
  PAGODA_CUDA_CHECK(cudaStreamCreate(&stream));
  const double seconds = MedianOf(stream, [&] {
    for (int round = 0; round < rounds; ++round) enqueue(stream, round);
  });
  PAGODA_CUDA_CHECK(cudaStreamDestroy(stream));
  return seconds / rounds;
}

}  // namespace pagoda::kernels::cuda

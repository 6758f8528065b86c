// Whether a GPU runs the launches of a decode step as one graph, and how often it did.
#ifndef PAGODA_ENGINE_GPU_GRAPHS_H_
#define PAGODA_ENGINE_GPU_GRAPHS_H_

#include <cstdint>
#include <string>

#include "engine/choices.h"

namespace pagoda {

enum class GpuGraphs {
  kAuto,   // If the self-test at the start has found that a graph gives the same numbers.
  kOff,    // Each launch is a call of its own.
  kCheck,  // As kAuto. But each step is captured again, and the graph runs only if the launches are
           // equal. Slower than kOff: for finding errors.
};

inline Choices<GpuGraphs> GpuGraphChoices() {
  return {{"auto", GpuGraphs::kAuto}, {"off", GpuGraphs::kOff}, {"check", GpuGraphs::kCheck}};
}

// Since the start of an engine.
struct StepGraphCounts {
  uint64_t captured = 0;    // Steps that were captured, and then run by their graph.
  uint64_t replayed = 0;    // Steps that an earlier step's graph ran.
  uint64_t mismatches = 0;  // kCheck: steps whose launches were not those of their graph.
  uint64_t dropped = 0;     // Graphs that were dropped: memory changed, or too many were kept.
  // Failures of a capture or of a graph's launch. After the first one, no graphs are used.
  uint64_t failures = 0;
  std::string problem;  // For people: the last failure or mismatch. Empty: there was none.
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_GPU_GRAPHS_H_

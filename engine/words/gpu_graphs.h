// How often a GPU ran the launches of a decode step as one graph (GpuGraphs).
#ifndef PAGODA_ENGINE_WORDS_GPU_GRAPHS_H_
#define PAGODA_ENGINE_WORDS_GPU_GRAPHS_H_

#include <cstdint>
#include <string>

namespace pagoda {

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

#endif  // PAGODA_ENGINE_WORDS_GPU_GRAPHS_H_

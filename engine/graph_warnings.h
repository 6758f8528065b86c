// The warnings of an engine about its graphs.
#ifndef PAGODA_ENGINE_GRAPH_WARNINGS_H_
#define PAGODA_ENGINE_GRAPH_WARNINGS_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "engine/words/gpu_graphs.h"

namespace pagoda {

// Tells once of the first mismatch, and once of the failure after which there are no graphs.
// Thread-compatible.
class GraphWarnings {
 public:
  // A sentence for people, from the counts so far. Empty: they say nothing new.
  std::string Next(const StepGraphCounts& counts) {
    if (counts.failures > 0) {
      if (told_failure_) return "";
      told_failure_ = true;
      return absl::StrCat("decode steps run without CUDA graphs from now on: ", counts.problem);
    }
    if (counts.mismatches == 0 || told_mismatch_) return "";
    told_mismatch_ = true;
    return absl::StrCat("the launches of a step were not those of its graph: ", counts.problem);
  }

 private:
  bool told_failure_ = false;
  bool told_mismatch_ = false;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_GRAPH_WARNINGS_H_

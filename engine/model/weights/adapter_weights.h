// A LoRA adapter's matrices in its model's backend.
#ifndef PAGODA_ENGINE_MODEL_WEIGHTS_ADAPTER_WEIGHTS_H_
#define PAGODA_ENGINE_MODEL_WEIGHTS_ADAPTER_WEIGHTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/adapter.h"
#include "engine/model/backend/backend.h"
#include "engine/model/weights/weights.h"

namespace pagoda {

struct AdapterWeights {
  using Linear = std::unique_ptr<LinearWeights>;

  // The change of some outputs of a matrix.
  struct Part {
    uint64_t first_output = 0;
    uint64_t first_rank = 0;  // Its first output of `down`.
    float scale = 0.0f;
    Linear up;  // [outputs][rank]
  };
  // The change of one matrix of the model. The parts have the same input.
  struct Change {
    Linear down;  // [the ranks of all parts][inputs]
    std::vector<Part> parts;
  };

  Adapter adapter;                                 // The matrices can refer to its bytes.
  std::map<const LinearWeights*, Change> changes;  // By the model's matrix.
};

// Loads the adapters' matrices into the backend that has the model's. `adapters` were opened for
// this model. Errors: those of Backend::MakeLinear.
absl::StatusOr<std::vector<AdapterWeights>> LoadAdapters(std::vector<Adapter> adapters,
                                                         const ModelWeights& model,
                                                         Backend& backend);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_WEIGHTS_ADAPTER_WEIGHTS_H_

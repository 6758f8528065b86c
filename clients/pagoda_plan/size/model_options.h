// The options that name a model's attention layers.
#ifndef PAGODA_CLIENTS_PAGODA_PLAN_SIZE_MODEL_OPTIONS_H_
#define PAGODA_CLIENTS_PAGODA_PLAN_SIZE_MODEL_OPTIONS_H_

#include <string>

#include "absl/status/statusor.h"
#include "clients/pagoda_plan/size/model_layers.h"

namespace CLI {
class App;
}

namespace pagoda {

struct ModelOptions {
  std::string model_dir;
  std::string preset;
  std::string layers;
  std::string dtype;  // Empty: the checkpoint's.

  // Whether a model is named.
  bool given() const { return !model_dir.empty() || !preset.empty() || !layers.empty(); }
};

enum class ModelNeed { kOne, kAtMostOne };

// Adds --model, --preset, --layers and --dtype. `options` must outlive the parser.
void AddModelOptions(CLI::App& command, ModelOptions& options, ModelNeed need);

// The layers and the dtype that the options name. REQUIRES: options.given().
// Errors: those of ReadModelLayers(), ParseModelLayers() and PresetModelLayers().
absl::StatusOr<ModelLayers> LayersOf(const ModelOptions& options);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_PLAN_SIZE_MODEL_OPTIONS_H_

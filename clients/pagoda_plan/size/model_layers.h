// The shapes of a model's attention layers that matter for its KV cache. They come from a
// checkpoint's folder, the name of a well-known model, or numbers.
#ifndef PAGODA_CLIENTS_PAGODA_PLAN_SIZE_MODEL_LAYERS_H_
#define PAGODA_CLIENTS_PAGODA_PLAN_SIZE_MODEL_LAYERS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "pools/layout.h"

namespace pagoda {

struct ModelLayers {
  std::string name;
  // In the model's order. Their dtype is the checkpoint's, or bfloat16 if it names none.
  std::vector<LayerSpec> layers;
};

// Reads DIR/config.json of a Hugging Face checkpoint. It also reads models that the bundled engine
// does not run: grouped queries, head_dim, sliding windows (`layer_types`,
// `sliding_window_pattern`, or one window for all layers), multi-head latent attention
// (`kv_lora_rank`), and the text part of multimodal models. Errors: INVALID_CHECKPOINT with the
// file and the field.
absl::StatusOr<ModelLayers> ReadModelLayers(const std::string& model_dir);

// Parses groups of layers, separated by commas. "36x8x128" is 36 layers of 8 KV heads of 128
// elements. "@1024" after it gives them a window of 1,024 tokens. "k" at the end leaves V out.
// Examples: "52x16x128@1024,10x16x128", "61x1x576k". Errors: INVALID_ARGUMENT with the group.
absl::StatusOr<ModelLayers> ParseModelLayers(const std::string& text);

// The well-known model of that name. Errors: INVALID_ARGUMENT, with the known names.
absl::StatusOr<ModelLayers> PresetModelLayers(std::string_view name);
const std::vector<std::string>& PresetNames();

// For people: "36 layers of 8 x 128" or "52 layers of 16 x 128 in a window of 1,024 tokens, 10
// layers of 16 x 128". Equal layers are counted together.
std::string DescribeLayers(const std::vector<LayerSpec>& layers);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_PLAN_SIZE_MODEL_LAYERS_H_

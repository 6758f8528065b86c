#include "clients/pagoda_plan/size/model_options.h"

#include <map>

#include "CLI/CLI.hpp"

namespace pagoda {
namespace {

const std::map<std::string, DType>& DTypes() {
  static const auto* const types = new std::map<std::string, DType>{
      {"float32", DType::kFloat32},     {"float16", DType::kFloat16},
      {"bfloat16", DType::kBFloat16},   {"fp8_e4m3", DType::kFloat8E4M3},
      {"fp8_e5m2", DType::kFloat8E5M2}, {"uint8", DType::kUint8}};
  return *types;
}

absl::StatusOr<ModelLayers> ReadLayers(const ModelOptions& options) {
  if (!options.model_dir.empty()) return ReadModelLayers(options.model_dir);
  if (!options.preset.empty()) return PresetModelLayers(options.preset);
  return ParseModelLayers(options.layers);
}

std::string CheckLayers(const std::string& text) {
  return std::string(ParseModelLayers(text).status().message());
}

}  // namespace

void AddModelOptions(CLI::App& command, ModelOptions& options, ModelNeed need) {
  const bool needs_one = need == ModelNeed::kOne;
  CLI::Option_group* model =
      command.add_option_group("model", needs_one ? "Exactly one of" : "At most one of");
  model->add_option("--model", options.model_dir, "A Hugging Face folder with a config.json")
      ->check(CLI::ExistingDirectory);
  model->add_option("--preset", options.preset, "A well-known model")
      ->check(CLI::IsMember(PresetNames()));
  model
      ->add_option("--layers", options.layers,
                   "LAYERSxKV_HEADSxHEAD_DIM, optionally followed by @WINDOW and by k (K only); "
                   "separate several groups with commas")
      ->check(CheckLayers);
  model->require_option(needs_one ? 1 : 0, 1);
  command.add_option("--dtype", options.dtype, "The cache's dtype; default: the checkpoint's")
      ->check(CLI::IsMember({"float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2", "uint8"}));
}

absl::StatusOr<ModelLayers> LayersOf(const ModelOptions& options) {
  absl::StatusOr<ModelLayers> model = ReadLayers(options);
  if (!model.ok() || options.dtype.empty()) return model;
  for (LayerSpec& layer : model->layers) layer.dtype = DTypes().at(options.dtype);
  return model;
}

}  // namespace pagoda

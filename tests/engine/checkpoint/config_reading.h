// Reads the configurations of golden models, as they are or edited.
#ifndef PAGODA_TESTS_ENGINE_CHECKPOINT_CONFIG_READING_H_
#define PAGODA_TESTS_ENGINE_CHECKPOINT_CONFIG_READING_H_

#include <nlohmann/json.hpp>
#include <string>

#include "engine/checkpoint/config/model_config.h"
#include "tests/engine/fixtures/scratch_model.h"

namespace pagoda {

// Both fail the test if the configuration is refused.
ModelConfig Load(const std::string& model);
ModelConfig LoadEdited(const std::string& name, const ScratchModel::Edit& edit);

// Why the model is refused with this value. Fails the test if it is not, or if the message does not
// name the field.
std::string Refusal(const std::string& name, const std::string& field, const nlohmann::json& value);

}  // namespace pagoda

#endif  // PAGODA_TESTS_ENGINE_CHECKPOINT_CONFIG_READING_H_

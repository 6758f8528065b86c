#include "tests/engine/checkpoint/config_reading.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/engine/fixtures/golden.h"

namespace pagoda {

using nlohmann::json;
using ::testing::HasSubstr;

ModelConfig Load(const std::string& model) {
  const absl::StatusOr<ModelConfig> config = LoadModelConfig(GoldenDir(model));
  EXPECT_TRUE(config.ok()) << config.status();
  return config.value_or(ModelConfig());
}

ModelConfig LoadEdited(const std::string& name, const ScratchModel::Edit& edit) {
  const ScratchModel model(name);
  model.EditJson("config.json", edit);
  const absl::StatusOr<ModelConfig> config = LoadModelConfig(model.dir());
  EXPECT_TRUE(config.ok()) << config.status();
  return config.value_or(ModelConfig());
}

// Why the model is refused with this value; the message names the field.
std::string Refusal(const std::string& name, const std::string& field, const json& value) {
  const ScratchModel model(name);
  model.EditJson("config.json", [&](json& config) {
    config[field] = value;
    if (field == "hidden_size") config.erase("head_dim");
  });
  const absl::Status status = LoadModelConfig(model.dir()).status();
  EXPECT_EQ(ReasonOf(status), Reason::kInvalidCheckpoint) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("config.json: " + field + " is "));
  return std::string(status.message());
}

}  // namespace pagoda

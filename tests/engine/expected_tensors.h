// The tensors of a model with a given configuration, for tests without a graph.
#ifndef PAGODA_TESTS_ENGINE_EXPECTED_TENSORS_H_
#define PAGODA_TESTS_ENGINE_EXPECTED_TENSORS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/model_config.h"

namespace pagoda {

// Shapes by name. Without the tensors of experts, which have several forms; transformer_test.cc
// loads those.
std::map<std::string, std::vector<uint64_t>> ExpectedTensors(const ModelConfig& config);

// OK if the checkpoint at this path has a configuration and all its tensors.
absl::Status LoadAll(const std::string& path);

}  // namespace pagoda

#endif  // PAGODA_TESTS_ENGINE_EXPECTED_TENSORS_H_

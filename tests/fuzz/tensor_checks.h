// The rules for everything that a checkpoint's reader accepts.
#ifndef PAGODA_TESTS_FUZZ_TENSOR_CHECKS_H_
#define PAGODA_TESTS_FUZZ_TENSOR_CHECKS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "engine/checkpoint/config/model_config.h"
#include "engine/checkpoint/files/tensor.h"

namespace pagoda::fuzz {

// INVALID_CHECKPOINT, and the message begins with the path.
void CheckRefusal(const absl::Status& status, const std::string& path);

// Each has the bytes of its shape, no two share one, and together they fit into the file.
void CheckTensors(const TensorMap& tensors, uint64_t file_bytes);

// The numbers are such that a graph can be built.
void CheckConfig(const ModelConfig& config);

}  // namespace pagoda::fuzz

#endif  // PAGODA_TESTS_FUZZ_TENSOR_CHECKS_H_

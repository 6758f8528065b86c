// Tells how far the loading of a model has come.
#ifndef PAGODA_ENGINE_MODEL_WEIGHTS_LOAD_WATCH_H_
#define PAGODA_ENGINE_MODEL_WEIGHTS_LOAD_WATCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "engine/model/backend/forwarding_backend.h"

namespace pagoda {

// Passes everything on to another backend. After each matrix it calls `on_load` with the bytes, in
// the checkpoint, of all matrices loaded so far. A matrix that is loaded twice counts twice: a tied
// embedding is also the head.
class LoadWatch final : public ForwardingBackend {
 public:
  LoadWatch(std::unique_ptr<Backend> inner, std::function<void(uint64_t bytes)> on_load)
      : ForwardingBackend(std::move(inner)), on_load_(std::move(on_load)) {}

  absl::StatusOr<std::unique_ptr<LinearWeights>> MakeLinear(absl::Span<const TensorInfo> matrices,
                                                            absl::Span<const float> bias) override {
    auto made = inner().MakeLinear(matrices, bias);
    for (const TensorInfo& matrix : matrices) bytes_ += matrix.bytes.size();
    on_load_(bytes_);
    return made;
  }
  absl::StatusOr<std::unique_ptr<EmbeddingWeights>> MakeEmbedding(
      const TensorInfo& matrix) override {
    auto made = inner().MakeEmbedding(matrix);
    bytes_ += matrix.bytes.size();
    on_load_(bytes_);
    return made;
  }

 private:
  const std::function<void(uint64_t bytes)> on_load_;
  uint64_t bytes_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_WEIGHTS_LOAD_WATCH_H_

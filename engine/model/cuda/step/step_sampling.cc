#include "engine/model/cuda/step/step_sampling.h"

#include <algorithm>

#include "engine/model/cuda/kernels/sampling_kernels.h"
#include "kernels/cuda/device/runtime.h"

namespace pagoda::cuda {

bool StepSampling::CanDraw(absl::Span<const TokenDraw> draws, uint64_t vocab_size) {
  return vocab_size <= kMostDrawScores &&
         std::any_of(draws.begin(), draws.end(),
                     [](const TokenDraw& draw) { return draw.kind == TokenDraw::Kind::kToken; });
}

absl::Status StepSampling::Draw(const RowsView& logits, absl::Span<const TokenDraw> draws,
                                const TokenDraw* device_draws) {
  rows_ = logits.rows;
  DrawArgs args = {.logits = logits, .draws = device_draws};
  const uint64_t blocks = rows_ * args.blocks();
  const uint64_t tokens_bytes = rows_ * sizeof(uint32_t);
  absl::Status status =
      scratch_.Grow(blocks * (sizeof(double) + sizeof(float)) + rows_ * sizeof(float));
  if (status.ok()) status = tokens_.Grow(tokens_bytes);
  if (status.ok()) status = pinned_tokens_.Grow(tokens_bytes);
  if (!status.ok()) return status;
  args.sums = scratch_.as<double>();
  args.maxima = reinterpret_cast<float*>(args.sums + blocks);
  args.most = args.maxima + blocks;
  args.tokens = tokens_.as<uint32_t>();

  bool random = false, unlimited = false;
  for (const TokenDraw& draw : draws) {
    if (draw.kind != TokenDraw::Kind::kToken || draw.temperature == 0.0f) continue;
    random = true;
    unlimited = unlimited || draw.top_k == 0;
  }
  int error = LaunchMostLikely(args, device_.stream());
  if (error == 0 && unlimited) error = LaunchDrawWeights(args, device_.stream());
  if (error == 0 && random) error = LaunchDraw(args, device_.stream());
  if (error != 0) return kernels::cuda::StatusOf("choice of tokens", error);
  return device_.Copy(pinned_tokens_.data(), tokens_.data(), tokens_bytes);
}

}  // namespace pagoda::cuda

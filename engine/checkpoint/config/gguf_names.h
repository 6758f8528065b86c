// Maps a GGUF file's tensors to those of Hugging Face transformers.
#ifndef PAGODA_ENGINE_CHECKPOINT_CONFIG_GGUF_NAMES_H_
#define PAGODA_ENGINE_CHECKPOINT_CONFIG_GGUF_NAMES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/checkpoint/config/model_config.h"
#include "engine/checkpoint/gguf/gguf.h"

namespace pagoda {

// Divisors of the rotary frequencies, [head_dim / 2]. They are part of the configuration, not
// weights.
inline constexpr char kGgufRotaryDivisors[] = "rope_freqs.weight";
// LongRoPE's factors, [RotaryDim / 2]. They are part of the configuration too.
inline constexpr char kGgufShortFactors[] = "rope_factors_short.weight";
inline constexpr char kGgufLongFactors[] = "rope_factors_long.weight";

// A GGUF file's tensors by their names in transformers. They point into the file, or into `copies`,
// which the caller keeps.
struct TranslatedTensors {
  TensorMap tensors;
  std::vector<std::vector<std::byte>> copies;
};

// llama.cpp stores the rows of a Llama's q and k in another order: the two dimensions that are
// rotated together are adjacent. This restores the order, in copies. `config` is from
// ReadGgufConfig. Errors: INVALID_CHECKPOINT with the tensor's name: a tensor that no architecture
// here has, which would change the result; q or k of another shape than `config` says.
absl::StatusOr<TranslatedTensors> TranslateTensors(const GgufFile& file, const ModelConfig& config);

// "blk.3.attn_q.weight" is "model.layers.3.self_attn.q_proj.weight". `has_post_norms`: Gemma has a
// second norm behind attention, and therefore other names. Nothing for an unknown name.
std::optional<std::string> HuggingFaceName(absl::string_view gguf_name, bool has_post_norms);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_CONFIG_GGUF_NAMES_H_

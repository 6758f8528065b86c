#include "engine/checkpoint/gguf_names.h"

#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda {
namespace {

struct NamePair {
  absl::string_view gguf;
  absl::string_view hugging_face;
};

constexpr NamePair kOutside[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
};
constexpr NamePair kInLayer[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},           {"ffn_down", "mlp.down_proj"},
};
constexpr NamePair kOfExperts[] = {
    {"ffn_gate_inp", "mlp.router"},
    {"ffn_gate_exps", "mlp.experts.gate_proj"},
    {"ffn_up_exps", "mlp.experts.up_proj"},
    {"ffn_down_exps", "mlp.experts.down_proj"},
};
// llama.cpp's ffn_norm is the norm before the MLP. In Llama, Hugging Face's
// post_attention_layernorm is that norm; in Gemma it is a norm behind attention. gpt-oss has
// Llama's norm by Gemma's name.
constexpr NamePair kLlamaNorms[] = {{"ffn_norm", "post_attention_layernorm"},
                                    {"post_attention_norm", "post_attention_layernorm"}};
constexpr NamePair kGemmaNorms[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};

std::optional<absl::string_view> Lookup(absl::Span<const NamePair> pairs, absl::string_view name) {
  for (const NamePair& pair : pairs) {
    if (pair.gguf == name) return pair.hugging_face;
  }
  return std::nullopt;
}

std::optional<absl::string_view> LookupInLayer(absl::string_view name, bool has_post_norms) {
  std::optional<absl::string_view> found = Lookup(kInLayer, name);
  if (!found.has_value()) found = Lookup(kOfExperts, name);
  if (found.has_value()) return found;
  return has_post_norms ? Lookup(kGemmaNorms, name) : Lookup(kLlamaNorms, name);
}

// Row h * D + 2 * i + s of the file is row h * D + s * D / 2 + i of the tensor: dimension i of half
// s of head h.
std::vector<std::byte> UndoRotaryOrder(const TensorInfo& tensor, uint64_t head_dim) {
  const uint64_t row_bytes = tensor.bytes.size() / tensor.shape[0];
  std::vector<std::byte> rows(tensor.bytes.size());
  for (uint64_t row = 0; row < tensor.shape[0]; ++row) {
    const uint64_t in_head = row % head_dim;
    const uint64_t to = row - in_head + in_head % 2 * (head_dim / 2) + in_head / 2;
    std::memcpy(rows.data() + to * row_bytes, tensor.bytes.data() + row * row_bytes, row_bytes);
  }
  return rows;
}

// The number of heads of a q or k of a Llama, whose rows have another order in the file; 0 for
// other tensors.
uint64_t RotatedHeads(absl::string_view name, const ModelConfig& config) {
  for (uint32_t layer = 0; layer < config.layers.size(); ++layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".self_attn.");
    if (!absl::StartsWith(name, prefix)) continue;
    const absl::string_view rest = name.substr(prefix.size());
    if (rest == "q_proj.weight") return config.num_heads;
    if (rest == "k_proj.weight") return config.layers[layer].num_kv_heads;
  }
  return 0;
}

}  // namespace

std::optional<std::string> HuggingFaceName(absl::string_view gguf_name, bool has_post_norms) {
  const size_t dot = gguf_name.rfind('.');
  if (dot == absl::string_view::npos) return std::nullopt;
  const absl::string_view suffix = gguf_name.substr(dot);
  if (suffix != ".weight" && suffix != ".bias") return std::nullopt;
  absl::string_view stem = gguf_name.substr(0, dot);
  constexpr absl::string_view kLayerPrefix = "blk.";
  if (!absl::StartsWith(stem, kLayerPrefix)) {
    const std::optional<absl::string_view> found = Lookup(kOutside, stem);
    if (!found.has_value()) return std::nullopt;
    return absl::StrCat(*found, suffix);
  }
  stem.remove_prefix(kLayerPrefix.size());
  const absl::string_view number = stem.substr(0, stem.find('.'));
  uint32_t layer = 0;
  // The number must be in its canonical form: "+3" and "03" would be second names of layer 3.
  if (!absl::SimpleAtoi(number, &layer) || absl::StrCat(layer) != number ||
      number.size() == stem.size()) {
    return std::nullopt;
  }
  // The file's other tensors have a suffix; Hugging Face's sinks have none.
  if (stem.substr(number.size()) == ".attn_sinks" && suffix == ".weight") {
    return absl::StrCat("model.layers.", layer, ".self_attn.sinks");
  }
  const std::optional<absl::string_view> found =
      LookupInLayer(stem.substr(number.size() + 1), has_post_norms);
  if (!found.has_value()) return std::nullopt;
  return absl::StrCat("model.layers.", layer, ".", *found, suffix);
}

absl::StatusOr<TranslatedTensors> TranslateTensors(const GgufFile& file,
                                                   const ModelConfig& config) {
  const bool is_llama = config.architecture == "LlamaForCausalLM";
  TranslatedTensors result;
  for (const auto& [gguf_name, tensor] : file.tensors()) {
    if (gguf_name == kGgufRotaryDivisors) continue;
    const std::optional<std::string> name = HuggingFaceName(gguf_name, config.post_norms);
    const auto refuse = [&](const auto&... what) {
      return MakeError(Reason::kInvalidCheckpoint,
                       absl::StrCat(file.path(), ": tensor ", gguf_name.substr(0, 80), what...));
    };
    if (!name.has_value()) return refuse(" is not a tensor that a ", config.architecture, " has");
    TensorInfo info = tensor;
    const uint64_t heads = is_llama ? RotatedHeads(*name, config) : 0;
    if (heads != 0) {
      if (info.shape.size() != 2 || info.shape[0] != heads * config.head_dim) {
        return refuse(" does not have the rows of ", heads, " heads of ", config.head_dim);
      }
      result.copies.push_back(UndoRotaryOrder(info, config.head_dim));
      info.bytes = result.copies.back();
    }
    if (!result.tensors.emplace(*name, std::move(info)).second) {
      return refuse(" is there twice, by two names");
    }
  }
  return result;
}

}  // namespace pagoda

#include "engine/checkpoint/config/gguf_names.h"

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
// Fused matrices. Phi 3's ffn_up has the rows of the gate and then those of up.
constexpr NamePair kOfPhi3[] = {{"attn_qkv", "self_attn.qkv_proj"}, {"ffn_up", "mlp.gate_up_proj"}};
// attn_k_b is [heads][latent][plain], attn_v_b [heads][value][latent]; attn_kv_b is as in Hugging
// Face.
constexpr NamePair kOfDeepseek[] = {{"attn_q_a", "self_attn.q_a_proj"},
                                    {"attn_q_a_norm", "self_attn.q_a_layernorm"},
                                    {"attn_q_b", "self_attn.q_b_proj"},
                                    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
                                    {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
                                    {"attn_kv_b", "self_attn.kv_b_proj"},
                                    {"attn_k_b", "self_attn.k_b_proj"},
                                    {"attn_v_b", "self_attn.v_b_proj"},
                                    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
                                    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
                                    {"ffn_down_shexp", "mlp.shared_experts.down_proj"}};
constexpr NamePair kOutsideBloom[] = {{"token_embd", "word_embeddings"},
                                      {"token_embd_norm", "word_embeddings_layernorm"},
                                      {"output_norm", "ln_f"}};
// attn_qkv has the rows of all queries, then keys, then values. Hugging Face's query_key_value has
// the three of each head together, so this has a name of its own.
constexpr NamePair kOfBloom[] = {
    {"attn_norm", "input_layernorm"},        {"attn_qkv", "self_attention.qkv_proj"},
    {"attn_output", "self_attention.dense"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_up", "mlp.dense_h_to_4h"},         {"ffn_down", "mlp.dense_4h_to_h"}};
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

// A tensor of a layer: "blk.LAYER.STEM", and ".weight" or ".bias".
struct LayerTensor {
  uint32_t layer = 0;
  absl::string_view stem;
  absl::string_view suffix;
};

std::optional<LayerTensor> ParseLayerTensor(absl::string_view stem, absl::string_view suffix) {
  constexpr absl::string_view kLayerPrefix = "blk.";
  if (!absl::StartsWith(stem, kLayerPrefix)) return std::nullopt;
  stem.remove_prefix(kLayerPrefix.size());
  const absl::string_view number = stem.substr(0, stem.find('.'));
  LayerTensor tensor = {.suffix = suffix};
  // The number must be in its canonical form: "+3" and "03" would be second names of layer 3.
  if (!absl::SimpleAtoi(number, &tensor.layer) || absl::StrCat(tensor.layer) != number ||
      number.size() == stem.size()) {
    return std::nullopt;
  }
  tensor.stem = stem.substr(number.size() + 1);
  return tensor;
}

// The part of a name before its suffix.
absl::string_view StemOf(absl::string_view gguf_name) {
  return gguf_name.substr(0, gguf_name.rfind('.'));
}

absl::string_view SuffixOf(absl::string_view gguf_name) {
  const size_t dot = gguf_name.rfind('.');
  return dot == absl::string_view::npos ? "" : gguf_name.substr(dot);
}

// The names that only this architecture has, or that mean something else in it.
std::optional<std::string> OwnName(absl::string_view gguf_name, const ModelConfig& config) {
  const std::optional<LayerTensor> tensor =
      ParseLayerTensor(StemOf(gguf_name), SuffixOf(gguf_name));
  if (!tensor.has_value()) return std::nullopt;
  const std::string layer = absl::StrCat("model.layers.", tensor->layer, ".");
  if (config.latent.has_value() && tensor->stem == "exp_probs_b" && tensor->suffix == ".bias") {
    return absl::StrCat(layer, "mlp.router.e_score_correction_bias");
  }
  if (tensor->suffix != ".weight") return std::nullopt;
  std::optional<absl::string_view> found;
  if (config.latent.has_value()) found = Lookup(kOfDeepseek, tensor->stem);
  if (config.architecture == "Phi3ForCausalLM") found = Lookup(kOfPhi3, tensor->stem);
  if (!found.has_value()) return std::nullopt;
  return absl::StrCat(layer, *found, ".weight");
}

std::optional<std::string> BloomName(absl::string_view gguf_name) {
  const absl::string_view stem = StemOf(gguf_name);
  const absl::string_view suffix = SuffixOf(gguf_name);
  if (suffix != ".weight" && suffix != ".bias") return std::nullopt;
  if (gguf_name == "output.weight") return "lm_head.weight";
  if (const auto found = Lookup(kOutsideBloom, stem)) {
    return absl::StrCat("transformer.", *found, suffix);
  }
  const std::optional<LayerTensor> tensor = ParseLayerTensor(stem, suffix);
  if (!tensor.has_value()) return std::nullopt;
  const auto found = Lookup(kOfBloom, tensor->stem);
  if (!found.has_value()) return std::nullopt;
  return absl::StrCat("transformer.h.", tensor->layer, ".", *found, suffix);
}

std::optional<std::string> NameOf(absl::string_view gguf_name, const ModelConfig& config) {
  if (config.names == TensorNames::kBloom) return BloomName(gguf_name);
  std::optional<std::string> name = OwnName(gguf_name, config);
  return name.has_value() ? name : HuggingFaceName(gguf_name, config.post_norms);
}

// Whether the tensor is a part of the configuration, which has been read.
bool IsOfConfig(absl::string_view gguf_name, const ModelConfig& config) {
  if (config.rotaries.empty()) return false;
  if (gguf_name == kGgufRotaryDivisors) return true;
  return config.rotaries[0].scaling == RotaryConfig::Scaling::kLongRope &&
         (gguf_name == kGgufShortFactors || gguf_name == kGgufLongFactors);
}

}  // namespace

std::optional<std::string> HuggingFaceName(absl::string_view gguf_name, bool has_post_norms) {
  const absl::string_view suffix = SuffixOf(gguf_name);
  if (suffix != ".weight" && suffix != ".bias") return std::nullopt;
  const absl::string_view stem = StemOf(gguf_name);
  if (!absl::StartsWith(stem, "blk.")) {
    const std::optional<absl::string_view> found = Lookup(kOutside, stem);
    if (!found.has_value()) return std::nullopt;
    return absl::StrCat(*found, suffix);
  }
  const std::optional<LayerTensor> tensor = ParseLayerTensor(stem, suffix);
  if (!tensor.has_value()) return std::nullopt;
  // The file's other tensors have a suffix; Hugging Face's sinks have none.
  if (tensor->stem == "attn_sinks" && suffix == ".weight") {
    return absl::StrCat("model.layers.", tensor->layer, ".self_attn.sinks");
  }
  const std::optional<absl::string_view> found = LookupInLayer(tensor->stem, has_post_norms);
  if (!found.has_value()) return std::nullopt;
  return absl::StrCat("model.layers.", tensor->layer, ".", *found, suffix);
}

absl::StatusOr<TranslatedTensors> TranslateTensors(const GgufFile& file,
                                                   const ModelConfig& config) {
  const bool is_llama = config.architecture == "LlamaForCausalLM";
  TranslatedTensors result;
  for (const auto& [gguf_name, tensor] : file.tensors()) {
    if (IsOfConfig(gguf_name, config)) continue;
    const std::optional<std::string> name = NameOf(gguf_name, config);
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

#include "tests/bench/engine/random_model.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace pagoda::bench {
namespace {

using nlohmann::json;
using Shape = std::vector<uint64_t>;

std::vector<std::pair<std::string, Shape>> TensorsOf(const RandomModelShape& shape) {
  const uint64_t hidden = shape.hidden_size;
  const uint64_t queries = uint64_t{shape.num_heads} * shape.head_dim;
  const uint64_t keys = uint64_t{shape.num_kv_heads} * shape.head_dim;
  std::vector<std::pair<std::string, Shape>> tensors = {
      {"model.embed_tokens.weight", {shape.vocab_size, hidden}}, {"model.norm.weight", {hidden}}};
  for (uint32_t layer = 0; layer < shape.num_layers; ++layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    const auto add = [&](const char* name, Shape of) {
      tensors.emplace_back(absl::StrCat(prefix, name, ".weight"), std::move(of));
    };
    add("input_layernorm", {hidden});
    add("self_attn.q_proj", {queries, hidden});
    add("self_attn.k_proj", {keys, hidden});
    add("self_attn.v_proj", {keys, hidden});
    add("self_attn.q_norm", {shape.head_dim});
    add("self_attn.k_norm", {shape.head_dim});
    add("self_attn.o_proj", {hidden, queries});
    add("post_attention_layernorm", {hidden});
    add("mlp.gate_proj", {shape.intermediate_size, hidden});
    add("mlp.up_proj", {shape.intermediate_size, hidden});
    add("mlp.down_proj", {hidden, shape.intermediate_size});
  }
  return tensors;
}

uint64_t ElementsOf(const Shape& shape) {
  uint64_t elements = 1;
  for (const uint64_t dimension : shape) elements *= dimension;
  return elements;
}

// Matrices of numbers between 2^-7 and 2^-5 of either sign; norms of ones.
void WriteTensors(const RandomModelShape& shape, const std::string& path) {
  const auto tensors = TensorsOf(shape);
  json header = json::object();
  uint64_t offset = 0;
  for (const auto& [name, of] : tensors) {
    const uint64_t end = offset + ElementsOf(of) * sizeof(uint16_t);
    header[name] = {{"dtype", "BF16"}, {"shape", of}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::ofstream file(path, std::ios::binary);
  const uint64_t length = text.size();  // Little-endian, as x86 is.
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << text;

  std::mt19937 random(1);
  std::vector<uint16_t> row(1 << 20);
  for (uint16_t& bits : row) bits = 0x3c00 | (random() & 0x80ff);
  const std::vector<uint16_t> ones(shape.hidden_size + shape.head_dim, 0x3f80);
  for (const auto& [name, of] : tensors) {
    const std::vector<uint16_t>& source = of.size() == 1 ? ones : row;
    for (uint64_t left = ElementsOf(of); left > 0;) {
      const uint64_t count = std::min<uint64_t>(left, source.size());
      file.write(reinterpret_cast<const char*>(source.data()),
                 static_cast<std::streamsize>(count * sizeof(uint16_t)));
      left -= count;
    }
  }
  PAGODA_CHECK(file.good(), "a benchmark's model can be written");
}

}  // namespace

uint64_t RandomModelShape::layer_weights() const {
  const uint64_t queries = uint64_t{num_heads} * head_dim;
  const uint64_t keys = uint64_t{num_kv_heads} * head_dim;
  return num_layers * uint64_t{hidden_size} * (2 * queries + 2 * keys + 3 * intermediate_size);
}

RandomModel::RandomModel(const RandomModelShape& shape) {
  std::string pattern = (std::filesystem::temp_directory_path() / "pagoda-bench-XXXXXX").string();
  PAGODA_CHECK(mkdtemp(pattern.data()) != nullptr, "a temporary folder can be made");
  dir_ = pattern;
  const json config = {{"architectures", {"Qwen3ForCausalLM"}},
                       {"attention_bias", false},
                       {"eos_token_id", 0},
                       {"head_dim", shape.head_dim},
                       {"hidden_act", "silu"},
                       {"hidden_size", shape.hidden_size},
                       {"intermediate_size", shape.intermediate_size},
                       {"max_position_embeddings", 40'960},
                       {"model_type", "qwen3"},
                       {"num_attention_heads", shape.num_heads},
                       {"num_hidden_layers", shape.num_layers},
                       {"num_key_value_heads", shape.num_kv_heads},
                       {"rms_norm_eps", 1e-6},
                       {"rope_scaling", nullptr},
                       {"rope_theta", 1'000'000},
                       {"tie_word_embeddings", true},
                       {"vocab_size", shape.vocab_size}};
  std::ofstream(dir_ + "/config.json") << config.dump();
  WriteTensors(shape, dir_ + "/model.safetensors");
}

RandomModel::~RandomModel() { std::filesystem::remove_all(dir_); }

}  // namespace pagoda::bench

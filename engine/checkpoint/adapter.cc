#include "engine/checkpoint/adapter.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/error.h"
#include "engine/checkpoint/adapter_fields.h"
#include "engine/checkpoint/config/field_reader.h"
#include "engine/checkpoint/files/json_text.h"
#include "engine/checkpoint/files/safetensors.h"

namespace pagoda {
namespace {

using Matrix = AdaptableModule::Matrix;

absl::Status Refuse(const std::string& path, absl::string_view why) {
  return MakeError(Reason::kInvalidCheckpoint, absl::StrCat(path, ": ", why));
}

absl::StatusOr<AdapterOptions> ReadOptions(const std::string& path) {
  const absl::StatusOr<nlohmann::json> root = ParseJsonFile(path, "the file");
  if (!root.ok()) return root.status();
  FieldReader reader(*root, path);
  AdapterOptions options = ReadAdapterOptions(reader);
  if (!reader.status().ok()) return reader.status();
  return options;
}

// A target that names no module would be a part of the adapter that does nothing here.
absl::Status CheckTargets(const std::string& path, const AdapterOptions& options,
                          absl::Span<const AdaptableModule> modules) {
  for (const ModuleSuffix& target : options.targets) {
    const bool known =
        std::any_of(modules.begin(), modules.end(),
                    [&](const AdaptableModule& module) { return target.Matches(module.name); });
    if (known) continue;
    std::set<std::string> ends;
    for (const AdaptableModule& module : modules) {
      ends.insert(module.name.substr(module.name.rfind('.') + 1));
    }
    return Refuse(path, absl::StrCat("target_modules has \"", target.text().substr(0, 200),
                                     "\"; adapters of this model can change only ",
                                     ends.empty() ? "nothing" : absl::StrJoin(ends, ", ")));
  }
  return absl::OkStatus();
}

// Takes tensors out of a file, so that the others are known at the end.
class TensorTaker {
 public:
  explicit TensorTaker(const SafetensorsFile& file) : file_(file) {
    for (const auto& [name, tensor] : file.tensors()) left_.insert(name);
    for (const auto& [name, type] : file.unread()) left_.insert(name);
  }

  absl::StatusOr<TensorInfo> Take(const std::string& name, const std::vector<uint64_t>& shape) {
    if (const auto it = file_.unread().find(name); it != file_.unread().end()) {
      return Refuse(file_.path(), absl::StrCat("tensor ", name, " is ", it->second.substr(0, 80),
                                               ", not F32, F16 or BF16"));
    }
    const auto it = file_.tensors().find(name);
    if (it == file_.tensors().end()) {
      return Refuse(file_.path(),
                    absl::StrCat("has no tensor ", name, ", but target_modules asks for it"));
    }
    if (it->second.shape != shape) {
      return Refuse(
          file_.path(),
          absl::StrCat("tensor ", name, " has shape [", absl::StrJoin(it->second.shape, ", "),
                       "], rank and model say [", absl::StrJoin(shape, ", "), "]"));
    }
    left_.erase(name);
    return it->second;
  }

  absl::Status CheckNoneLeft() const {
    if (left_.empty()) return absl::OkStatus();
    return Refuse(file_.path(),
                  absl::StrCat("tensor ", left_.begin()->substr(0, 200),
                               " is not lora_A or lora_B of a module that target_modules names"));
  }

 private:
  const SafetensorsFile& file_;
  std::set<std::string> left_;
};

void HashNumber(XXH3_state_t* state, uint64_t number) {
  XXH3_64bits_update(state, &number, sizeof(number));
}

void HashTensor(XXH3_state_t* state, const TensorInfo& tensor) {
  HashNumber(state, static_cast<uint64_t>(tensor.type));
  HashNumber(state, tensor.shape[0]);
  HashNumber(state, tensor.shape[1]);
  XXH3_64bits_update(state, tensor.bytes.data(), tensor.bytes.size());
}

// The name's length comes before it, and the shape before the bytes, so different lists differ.
uint64_t FingerprintOf(absl::Span<const Adapter::Change> changes) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (const Adapter::Change& change : changes) {
    HashNumber(&state, change.module.name.size());
    XXH3_64bits_update(&state, change.module.name.data(), change.module.name.size());
    HashNumber(&state, std::bit_cast<uint32_t>(change.scale));
    HashTensor(&state, change.down);
    HashTensor(&state, change.up);
  }
  return XXH3_64bits_digest(&state) >> 1;
}

}  // namespace

std::vector<AdaptableModule> AdaptableModulesOf(const ModelConfig& config,
                                                const Checkpoint& checkpoint) {
  std::vector<AdaptableModule> modules;
  if (config.names != TensorNames::kLlama) return modules;
  const uint64_t hidden = config.hidden_size;
  const uint64_t inner = config.intermediate_size;
  const uint64_t queries = uint64_t{config.num_heads} * config.head_dim;
  for (uint32_t i = 0; i < config.layers.size(); ++i) {
    const LayerConfig& layer = config.layers[i];
    const std::string prefix = absl::StrCat("model.layers.", i, ".");
    uint64_t first_output = 0;
    const auto add = [&](const char* name, Matrix matrix, uint64_t outputs, uint64_t inputs) {
      modules.push_back({prefix + name, i, matrix, first_output, outputs, inputs});
      first_output += outputs;
    };
    const uint64_t keys = uint64_t{layer.num_kv_heads} * config.head_dim;
    if (config.latent.has_value()) {
      // Its other matrices are split or absorbed.
    } else if (checkpoint.Has(prefix + "self_attn.qkv_proj.weight")) {
      add("self_attn.qkv_proj", Matrix::kQueryKeyValue, queries + 2 * keys, hidden);
    } else {
      add("self_attn.q_proj", Matrix::kQueryKeyValue, queries, hidden);
      add("self_attn.k_proj", Matrix::kQueryKeyValue, keys, hidden);
      add("self_attn.v_proj", Matrix::kQueryKeyValue, keys, hidden);
    }
    first_output = 0;
    add("self_attn.o_proj", Matrix::kAttentionOutput, hidden,
        config.latent.has_value() ? uint64_t{config.num_heads} * config.latent->value_dim
                                  : queries);
    if (layer.has_experts) continue;
    first_output = 0;
    if (checkpoint.Has(prefix + "mlp.gate_up_proj.weight")) {
      add("mlp.gate_up_proj", Matrix::kGateUp, 2 * inner, hidden);
    } else {
      add("mlp.gate_proj", Matrix::kGateUp, inner, hidden);
      add("mlp.up_proj", Matrix::kGateUp, inner, hidden);
    }
    first_output = 0;
    add("mlp.down_proj", Matrix::kDown, hidden, inner);
  }
  return modules;
}

TensorInfo Adapter::Keep(const TensorInfo& tensor) {
  const std::vector<std::byte>& kept =
      bytes_.emplace_back(tensor.bytes.begin(), tensor.bytes.end());
  return {.type = tensor.type, .shape = tensor.shape, .bytes = kept};
}

absl::StatusOr<Adapter> Adapter::Open(const std::string& dir,
                                      absl::Span<const AdaptableModule> modules) {
  return OpenFiles(dir + "/adapter_config.json", dir + "/adapter_model.safetensors", modules);
}

absl::StatusOr<Adapter> Adapter::OpenFiles(const std::string& config_path,
                                           const std::string& tensors_path,
                                           absl::Span<const AdaptableModule> modules) {
  absl::StatusOr<AdapterOptions> options = ReadOptions(config_path);
  if (!options.ok()) return options.status();
  absl::Status known = CheckTargets(config_path, *options, modules);
  if (!known.ok()) return known;
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(tensors_path);
  if (!file.ok()) return file.status();

  Adapter adapter;
  TensorTaker tensors(*file);
  for (const AdaptableModule& module : modules) {
    if (!options->Targets(module.name, module.layer)) continue;
    const absl::StatusOr<AdapterOptions::Rank> rank = options->RankOf(module.name);
    if (!rank.ok()) return Refuse(config_path, rank.status().message());
    const std::string prefix = absl::StrCat("base_model.model.", module.name, ".lora_");
    const auto down = tensors.Take(prefix + "A.weight", {rank->rank, module.inputs});
    if (!down.ok()) return down.status();
    const auto up = tensors.Take(prefix + "B.weight", {module.outputs, rank->rank});
    if (!up.ok()) return up.status();
    adapter.changes_.push_back({.module = module,
                                .down = adapter.Keep(*down),
                                .up = adapter.Keep(*up),
                                .scale = rank->scale});
  }
  if (absl::Status none_left = tensors.CheckNoneLeft(); !none_left.ok()) return none_left;
  if (adapter.changes_.empty()) {
    return Refuse(config_path, "target_modules and layers_to_transform name no module");
  }
  adapter.fingerprint_ = FingerprintOf(adapter.changes_);
  if (absl::Status unchanged = file->CheckUnchanged(); !unchanged.ok()) return unchanged;
  return adapter;
}

}  // namespace pagoda

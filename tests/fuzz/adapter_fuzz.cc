// A LoRA adapter: an adapter_config.json and a file of tensors.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "engine/checkpoint/adapter.h"
#include "tests/fuzz/byte_reader.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/planted.h"
#include "tests/fuzz/tensor_checks.h"

namespace pagoda::fuzz {
namespace {

using nlohmann::json;

// Two layers of a tiny model.
std::vector<AdaptableModule> Modules() {
  using Matrix = AdaptableModule::Matrix;
  std::vector<AdaptableModule> modules;
  for (uint32_t layer = 0; layer < 2; ++layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    modules.push_back({prefix + "self_attn.q_proj", layer, Matrix::kQueryKeyValue, 0, 6, 4});
    modules.push_back({prefix + "self_attn.v_proj", layer, Matrix::kQueryKeyValue, 6, 2, 4});
    modules.push_back({prefix + "mlp.down_proj", layer, Matrix::kDown, 0, 4, 3});
  }
  return modules;
}

std::string Text(absl::Span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

json Pattern(ByteReader& reader) {
  constexpr const char* kNames[] = {"q_proj", "self_attn.q_proj", "^model.layers.0.mlp.down_proj",
                                    "layers.1.self_attn.v_proj", ".*"};
  json pattern = json::object();
  while (reader.OneIn(3)) pattern[kNames[reader.Below(5)]] = reader.Below(5);
  return pattern;
}

json Config(ByteReader& reader) {
  constexpr const char* kTargets[] = {
      "q_proj", "v_proj", "down_proj", "self_attn.q_proj", "model.layers.1.self_attn.q_proj",
      "lm_head"};
  json config = {{"peft_type", "LORA"}, {"r", 1 + reader.Below(3)}};
  if (reader.OneIn(2)) config["lora_alpha"] = reader.Below(200);
  if (reader.OneIn(2)) config["use_rslora"] = true;
  if (reader.OneIn(3)) config["rank_pattern"] = Pattern(reader);
  if (reader.OneIn(3)) config["alpha_pattern"] = Pattern(reader);
  if (reader.OneIn(4)) config["layers_to_transform"] = reader.Below(3);
  if (reader.OneIn(16)) config[Text(reader.Take(reader.Below(16)))] = reader.Below(2);
  if (reader.OneIn(4)) {
    config["target_modules"] = "all-linear";
    return config;
  }
  config["target_modules"] = json::array();
  for (uint32_t i = 1 + reader.Below(3); i > 0; --i) {
    config["target_modules"].push_back(kTargets[reader.Below(6)]);
  }
  return config;
}

// Tensors of the modules that the decisions choose; most inputs choose those of the options.
std::string Tensors(ByteReader& reader, const json& config) {
  const bool all = !reader.OneIn(4);
  const uint32_t rank = reader.OneIn(8) ? reader.Below(5) : config.value("r", 1u);
  json header = json::object();
  uint64_t end = 0;
  const auto add = [&](const std::string& name, uint64_t rows, uint64_t cols) {
    const bool half = reader.OneIn(4);
    const uint64_t bytes = rows * cols * (half ? 2 : 4) + (reader.OneIn(32) ? 1 : 0);
    header[name] = {{"dtype", half ? "BF16" : "F32"},
                    {"shape", {rows, cols}},
                    {"data_offsets", {end, end + bytes}}};
    end += bytes;
  };
  for (const AdaptableModule& module : Modules()) {
    const std::string last = module.name.substr(module.name.rfind('.') + 1);
    const bool named = config["target_modules"].dump().find(last) != std::string::npos ||
                       config["target_modules"].is_string();
    if (all ? !named : reader.OneIn(2)) continue;
    add(absl::StrCat("base_model.model.", module.name, ".lora_A.weight"), rank, module.inputs);
    add(absl::StrCat("base_model.model.", module.name, ".lora_B.weight"), module.outputs, rank);
  }
  const std::string text = header.dump();
  std::string content;
  for (int i = 0; i < 8; ++i) content += static_cast<char>(uint64_t{text.size()} >> 8 * i);
  content += text;
  std::string data = Text(reader.Take(end));
  data.resize(end);
  return content + data;
}

void CheckChange(const Adapter::Change& change) {
  const uint64_t rank = change.down.shape.at(0) + (Planted("RankNotChecked") ? 1 : 0);
  PAGODA_CHECK(change.up.shape == (std::vector<uint64_t>{change.module.outputs, rank}) &&
                   change.down.shape.at(1) == change.module.inputs,
               "both matrices have the rank, and the module's sizes");
  PAGODA_CHECK(std::isfinite(change.scale) && change.scale >= 0, "a scale is a number");
  PAGODA_CHECK(ToFloats(change.down).size() == rank * change.module.inputs &&
                   ToFloats(change.up).size() == rank * change.module.outputs,
               "a matrix has the elements of its shape");
}

void Check(const std::string& config, const std::string& tensors) {
  const MemoryFile config_file(config);
  const MemoryFile tensors_file(tensors);
  const std::vector<AdaptableModule> modules = Modules();
  const auto open = [&] {
    return Adapter::OpenFiles(config_file.path(), tensors_file.path(), modules);
  };
  const absl::StatusOr<Adapter> adapter = open();
  if (!adapter.ok()) {
    const bool in_config = absl::StartsWith(adapter.status().message(), config_file.path() + ": ");
    return CheckRefusal(adapter.status(), (in_config ? config_file : tensors_file).path());
  }
  PAGODA_CHECK(!adapter->changes().empty(), "an adapter changes something");
  for (const Adapter::Change& change : adapter->changes()) CheckChange(change);
  PAGODA_CHECK(adapter->fingerprint() >> 63 == 0, "a fingerprint has 63 bits");
  PAGODA_CHECK(open()->fingerprint() == adapter->fingerprint(), "a fingerprint stays");
}

void Run(ByteReader reader, size_t size) {
  if (reader.OneIn(4)) return Check(Text(reader.Take(size)), "short");
  const json config = Config(reader);
  const std::string text = config.dump(-1, ' ', false, json::error_handler_t::replace);
  const std::string tensors = reader.OneIn(8) ? Text(reader.Take(size)) : Tensors(reader, config);
  Check(text, tensors);
}

}  // namespace
}  // namespace pagoda::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pagoda::fuzz::Run(pagoda::fuzz::ByteReader({data, size}), size);
  return 0;
}

#include "engine/checkpoint/checkpoint.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <unistd.h>

#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/checkpoint/mapped_file.h"
#include "kernels/numeric.h"
#include "pools/error.h"

namespace pagoda {
namespace {

using nlohmann::json;

constexpr char kSingleFile[] = "/model.safetensors";
constexpr char kIndexFile[] = "/model.safetensors.index.json";

// A name that stays inside its directory.
bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name[0] != '.' && name.find('/') == std::string::npos;
}

// The files that an index spreads its tensors over.
absl::StatusOr<std::set<std::string>> ReadIndex(const std::string& path) {
  absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (!file.ok()) return file.status();
  const json index = json::parse(file->text(), nullptr, /*allow_exceptions=*/false);
  const json weight_map =
      index.is_object() && index.contains("weight_map") ? index["weight_map"] : json();
  if (!weight_map.is_object() || weight_map.empty()) {
    return MakeError(Reason::kInvalidCheckpoint, absl::StrCat(path, ": has no weight_map"));
  }
  std::set<std::string> names;
  for (const auto& [tensor, name] : weight_map.items()) {
    if (!name.is_string() || !IsPlainFileName(name.get<std::string>())) {
      return MakeError(Reason::kInvalidCheckpoint, absl::StrCat(path, ": the file of tensor ",
                                                                tensor, " is no plain file name"));
    }
    names.insert(name.get<std::string>());
  }
  return names;
}

template <class T>
std::vector<float> ConvertFloats(absl::Span<const std::byte> bytes) {
  std::vector<float> floats(bytes.size() / sizeof(T));
  for (size_t i = 0; i < floats.size(); ++i) {
    T element;
    std::memcpy(&element, bytes.data() + i * sizeof(T), sizeof(T));
    floats[i] = kernels::ToFloat(element);
  }
  return floats;
}

// XXH3 over numbers and over bytes with their lengths, so that no two lists of them look the same.
class Hasher {
 public:
  Hasher() { XXH3_64bits_reset(&state_); }

  void Add(uint64_t number) { XXH3_64bits_update(&state_, &number, sizeof(number)); }
  void Add(absl::Span<const std::byte> bytes) {
    Add(bytes.size());
    XXH3_64bits_update(&state_, bytes.data(), bytes.size());
  }
  void Add(const std::string& text) {
    Add(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(text.data()), text.size()));
  }

  uint64_t Digest() const { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

}  // namespace

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& model_dir) {
  std::set<std::string> names = {&kSingleFile[1]};
  // With an index beside it, the single file is one of those that the index names, or is left over.
  if (access(absl::StrCat(model_dir, kIndexFile).c_str(), F_OK) == 0) {
    absl::StatusOr<std::set<std::string>> indexed = ReadIndex(absl::StrCat(model_dir, kIndexFile));
    if (!indexed.ok()) return indexed.status();
    names = *std::move(indexed);
  }
  std::vector<SafetensorsFile> files;
  for (const std::string& name : names) {
    absl::StatusOr<SafetensorsFile> file =
        SafetensorsFile::Open(absl::StrCat(model_dir, "/", name));
    if (!file.ok()) return file.status();
    files.push_back(*std::move(file));
  }
  return Checkpoint(model_dir, std::move(files));
}

Checkpoint::Checkpoint(std::string model_dir, std::vector<SafetensorsFile> files)
    : model_dir_(std::move(model_dir)), files_(std::move(files)) {
  for (const SafetensorsFile& file : files_) {
    for (const auto& [name, view] : file.tensors()) tensors_.emplace(name, &view);
  }
}

absl::StatusOr<TensorInfo> Checkpoint::Find(const std::string& name,
                                            absl::Span<const uint64_t> shape) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) {
    return MakeError(Reason::kInvalidCheckpoint,
                     absl::StrCat(model_dir_, ": has no tensor ", name));
  }
  const TensorView& view = *it->second;
  if (absl::MakeConstSpan(view.shape) != shape) {
    return MakeError(
        Reason::kInvalidCheckpoint,
        absl::StrCat(model_dir_, ": tensor ", name, " has shape [", absl::StrJoin(view.shape, ", "),
                     "], config.json says [", absl::StrJoin(shape, ", "), "]"));
  }
  TensorInfo info{.shape = view.shape, .bytes = view.bytes};
  if (view.dtype == "F32") {
    info.type = TensorType::kFloat32;
  } else if (view.dtype == "F16") {
    info.type = TensorType::kFloat16;
  } else if (view.dtype == "BF16") {
    info.type = TensorType::kBFloat16;
  } else {
    return MakeError(
        Reason::kInvalidCheckpoint,
        absl::StrCat(model_dir_, ": tensor ", name, " is ", view.dtype, ", not F32, F16 or BF16"));
  }
  return info;
}

absl::StatusOr<std::vector<float>> Checkpoint::ReadFloats(const std::string& name,
                                                          absl::Span<const uint64_t> shape) const {
  absl::StatusOr<TensorInfo> info = Find(name, shape);
  if (!info.ok()) return info.status();
  if (info->type == TensorType::kFloat32) return ConvertFloats<float>(info->bytes);
  if (info->type == TensorType::kFloat16) return ConvertFloats<kernels::Half>(info->bytes);
  return ConvertFloats<kernels::BFloat16>(info->bytes);
}

std::string Checkpoint::Fingerprint(const ModelConfig& config) const {
  Hasher hasher;
  for (const uint32_t number :
       {config.num_heads, config.head_dim, std::bit_cast<uint32_t>(config.rms_norm_eps)}) {
    hasher.Add(number);
  }
  for (const LayerConfig& layer : config.layers) {
    hasher.Add(layer.window.value());
    hasher.Add(layer.num_kv_heads);
    hasher.Add(std::bit_cast<uint32_t>(config.rotaries[layer.rotary].theta));
  }
  for (const auto& [name, view] : tensors_) {
    hasher.Add(name);
    hasher.Add(view->dtype);
    for (const uint64_t dimension : view->shape) hasher.Add(dimension);
    hasher.Add(view->bytes);
  }
  return absl::StrCat(config.architecture, "-", absl::Hex(hasher.Digest(), absl::kZeroPad16));
}

}  // namespace pagoda

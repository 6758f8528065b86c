#include "engine/checkpoint/checkpoint.h"

#include <unistd.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/error.h"
#include "engine/checkpoint/config/gguf_config.h"
#include "engine/checkpoint/config/gguf_names.h"
#include "engine/checkpoint/files/json_text.h"
#include "engine/checkpoint/files/model_path.h"
#include "engine/checkpoint/files/mxfp4_pairs.h"
#include "engine/checkpoint/fingerprint.h"

namespace pagoda {
namespace {

using nlohmann::json;

constexpr char kSingleFile[] = "/model.safetensors";
constexpr char kIndexFile[] = "/model.safetensors.index.json";

// A name that stays inside its directory.
bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name[0] != '.' && name.find('/') == std::string::npos;
}

// The files that an index names.
absl::StatusOr<std::set<std::string>> ReadIndex(const std::string& path) {
  const absl::StatusOr<json> index = ParseJsonFile(path, "the index");
  if (!index.ok()) return index.status();
  const json weight_map = index->value("weight_map", json());
  if (!weight_map.is_object() || weight_map.empty()) {
    return MakeError(Reason::kInvalidCheckpoint, absl::StrCat(path, ": has no weight_map"));
  }
  std::set<std::string> names;
  for (const auto& [tensor, name] : weight_map.items()) {
    if (!name.is_string() || !IsPlainFileName(name.get<std::string>())) {
      return MakeError(
          Reason::kInvalidCheckpoint,
          absl::StrCat(path, ": the file of tensor ", tensor, " is not a plain file name"));
    }
    names.insert(name.get<std::string>());
  }
  return names;
}

}  // namespace

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& model_dir) {
  const absl::StatusOr<std::optional<std::string>> gguf_path = FindGgufFile(model_dir);
  if (!gguf_path.ok()) return gguf_path.status();
  if (gguf_path->has_value()) return OpenGguf(model_dir, **gguf_path);

  std::set<std::string> names = {&kSingleFile[1]};
  // If there is an index, the single file is one of the index's files or is left over.
  if (access(absl::StrCat(model_dir, kIndexFile).c_str(), F_OK) == 0) {
    absl::StatusOr<std::set<std::string>> indexed = ReadIndex(absl::StrCat(model_dir, kIndexFile));
    if (!indexed.ok()) return indexed.status();
    names = *std::move(indexed);
  }
  Checkpoint checkpoint(model_dir);
  for (const std::string& name : names) {
    absl::StatusOr<SafetensorsFile> file =
        SafetensorsFile::Open(absl::StrCat(model_dir, "/", name));
    if (!file.ok()) return file.status();
    const absl::Status added = checkpoint.Add(*std::move(file));
    if (!added.ok()) return added;
  }
  const absl::Status joined = checkpoint.JoinPairs();
  if (!joined.ok()) return joined;
  return checkpoint;
}

absl::Status Checkpoint::Add(SafetensorsFile file) {
  for (const auto& [name, tensor] : file.tensors()) {
    if (Has(name)) {
      return MakeError(Reason::kInvalidCheckpoint,
                       absl::StrCat(file.path(), ": another file has tensor ", name, ", too"));
    }
    tensors_.emplace(name, tensor);
  }
  unread_.insert(file.unread().begin(), file.unread().end());
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

absl::Status Checkpoint::JoinPairs() {
  ByteTensorMap bytes;  // The tensors of all files: a pair can lie in two of them.
  for (const SafetensorsFile& file : files_) {
    bytes.insert(file.byte_tensors().begin(), file.byte_tensors().end());
  }
  absl::StatusOr<JoinedTensors> joined = JoinMxfp4Pairs(bytes);
  if (!joined.ok()) {
    return MakeError(Reason::kInvalidCheckpoint,
                     absl::StrCat(model_dir_, ": ", joined.status().message()));
  }
  for (const auto& [name, tensor] : joined->tensors) {
    if (!tensors_.emplace(name, tensor).second) {
      return MakeError(Reason::kInvalidCheckpoint,
                       absl::StrCat(model_dir_, ": has tensor ", name, " twice, once in MXFP4"));
    }
  }
  copies_ = std::move(joined->copies);
  return absl::OkStatus();
}

absl::StatusOr<Checkpoint> Checkpoint::OpenGguf(const std::string& model_dir,
                                                const std::string& path) {
  absl::StatusOr<GgufFile> file = GgufFile::Open(path);
  if (!file.ok()) return file.status();
  const absl::StatusOr<ModelConfig> config = ReadGgufConfig(*file);
  if (!config.ok()) return config.status();
  absl::StatusOr<TranslatedTensors> translated = TranslateTensors(*file, *config);
  if (!translated.ok()) return translated.status();
  Checkpoint checkpoint(model_dir);
  checkpoint.gguf_.emplace(*std::move(file));
  checkpoint.copies_ = std::move(translated->copies);
  checkpoint.tensors_ = std::move(translated->tensors);
  return checkpoint;
}

bool Checkpoint::Has(const std::string& name) const {
  return tensors_.contains(name) || unread_.contains(name);
}

absl::StatusOr<TensorInfo> Checkpoint::Find(const std::string& name,
                                            absl::Span<const uint64_t> shape) const {
  const auto refuse = [&](const auto&... why) {
    return MakeError(Reason::kInvalidCheckpoint, absl::StrCat(model_dir_, ": ", why...));
  };
  if (const auto it = unread_.find(name); it != unread_.end()) {
    return refuse("tensor ", name, " is ", it->second, ", not F32, F16 or BF16");
  }
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) return refuse("has no tensor ", name);
  if (absl::MakeConstSpan(it->second.shape) != shape) {
    return refuse("tensor ", name, " has shape [", absl::StrJoin(it->second.shape, ", "),
                  "], the configuration says [", absl::StrJoin(shape, ", "), "]");
  }
  return it->second;
}

absl::StatusOr<std::vector<float>> Checkpoint::ReadFloats(const std::string& name,
                                                          absl::Span<const uint64_t> shape) const {
  const absl::StatusOr<TensorInfo> tensor = Find(name, shape);
  if (!tensor.ok()) return tensor.status();
  return ToFloats(*tensor);
}

absl::Status Checkpoint::CheckUnchanged() const {
  if (gguf_.has_value()) return gguf_->CheckUnchanged();
  for (const SafetensorsFile& file : files_) {
    if (absl::Status status = file.CheckUnchanged(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

std::string Checkpoint::Fingerprint(const ModelConfig& config) const {
  return FingerprintOf(config, tensors_);
}

}  // namespace pagoda

#include "engine/checkpoint/files/json_text.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "engine/checkpoint/files/mapped_file.h"
#include "engine/json/json_builder.h"

namespace pagoda {
namespace {

using nlohmann::json;

constexpr size_t kMaxDepth = 16;

class ObjectBuilder final : public JsonBuilder<json> {
 public:
  ObjectBuilder() : JsonBuilder(kMaxDepth) {}

 private:
  absl::Status OnKey(const json& object, const std::string& key, size_t /*depth*/) override {
    if (!object.contains(key)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("has the key ", key.substr(0, 80), " twice"));
  }
};

}  // namespace

absl::StatusOr<json> ParseJsonObject(std::string_view text, absl::string_view path,
                                     absl::string_view what) {
  absl::StatusOr<json> root = ObjectBuilder().Read({text.data(), text.size()});
  if (root.ok() && root->is_object()) return root;
  const std::string complaint(root.ok() ? "is not a JSON object" : root.status().message());
  return MakeError(Reason::kInvalidCheckpoint, absl::StrCat(path, ": ", what, " ", complaint));
}

absl::StatusOr<json> ParseJsonFile(const std::string& path, absl::string_view what) {
  const absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (!file.ok()) return file.status();
  absl::StatusOr<json> root = ParseJsonObject(file->text(), path, what);
  if (absl::Status unchanged = file->CheckUnchanged(); !unchanged.ok()) return unchanged;
  return root;
}

}  // namespace pagoda

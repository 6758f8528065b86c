// Parses the JSON of a request of OpenAI's API within its limits.
#ifndef PAGODA_ENGINE_SERVE_OPENAI_API_READER_H_
#define PAGODA_ENGINE_SERVE_OPENAI_API_READER_H_

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/json/json_builder.h"

namespace pagoda::server {

// Keeps the order of keys: templates write a tool's keys as the client did.
using ApiJson = nlohmann::ordered_json;

// How deep a request can nest: the schemas of tools are the deepest part.
inline constexpr size_t kMaxBodyDepth = 32;
// The members of one object.
inline constexpr size_t kMaxMembers = 4096;

// Asked now and then while JSON is parsed, with the bytes that the next values take. An error ends
// the parsing.
using ParseGuard = std::function<absl::Status(size_t bytes)>;

// Reads the texts of one request. Objects that keep their order find a key by comparing all keys
// before it, so their members are bounded: in each object, and in the squares of all together.
// Thread-compatible.
class ApiReader final : public JsonBuilder<ApiJson> {
 public:
  explicit ApiReader(ParseGuard guard)
      : JsonBuilder(kMaxBodyDepth), guard_(std::move(guard)), members_(kMaxBodyDepth + 1) {}

  // `path` names the text in errors: INVALID_ARGUMENT if it has too many members, or nests too
  // deeply; those of the guard. Discarded JSON if it is not valid.
  absl::StatusOr<ApiJson> Read(absl::string_view text, const std::string& path);

 private:
  static constexpr size_t kMaxSearched = 50'000'000;

  absl::Status OnGrowth(size_t bytes) override { return guard_(bytes); }
  absl::Status OnKey(const ApiJson& object, const std::string& key, size_t depth) override;

  const ParseGuard guard_;
  std::vector<size_t> members_;  // Keys of the open objects, by their depth.
  size_t searched_ = 0;          // Keys that were compared, at most.
};

}  // namespace pagoda::server

#endif  // PAGODA_ENGINE_SERVE_OPENAI_API_READER_H_

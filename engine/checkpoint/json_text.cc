#include "engine/checkpoint/json_text.h"

#include <array>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 16;

// Watches the parser's events, keeps the first complaint, and drops values that are too deep.
class Watch {
 public:
  const std::string& complaint() const { return complaint_; }

  // `depth` is the number of enclosing objects and arrays.
  bool Keep(int depth, json::parse_event_t event, const json& parsed) {
    if (depth >= kMaxDepth) {
      Complain(absl::StrCat(" is nested more than ", kMaxDepth, " levels deep"));
      return false;
    }
    if (event == json::parse_event_t::object_start) keys_[depth + 1].clear();
    if (event == json::parse_event_t::key) {
      const auto [key, is_new] = keys_[depth].insert(parsed.get<std::string>());
      if (!is_new) Complain(absl::StrCat(" has the key ", key->substr(0, 80), " twice"));
    }
    return true;
  }

 private:
  void Complain(std::string complaint) {
    if (complaint_.empty()) complaint_ = std::move(complaint);
  }

  std::array<absl::flat_hash_set<std::string>, kMaxDepth + 1> keys_;  // The keys of the object at
                                                                      // each depth.
  std::string complaint_;
};

}  // namespace

absl::StatusOr<json> ParseJsonObject(std::string_view text, absl::string_view path,
                                     absl::string_view what) {
  Watch watch;
  json root = json::parse(
      text,
      [&](int depth, json::parse_event_t event, json& parsed) {
        return watch.Keep(depth, event, parsed);
      },
      /*allow_exceptions=*/false);
  std::string complaint = watch.complaint();
  if (complaint.empty() && !root.is_object()) complaint = " is not a JSON object";
  if (complaint.empty()) return root;
  return MakeError(Reason::kInvalidCheckpoint, absl::StrCat(path, ": ", what, complaint));
}

}  // namespace pagoda

#include "engine/serve/openai/api_reader.h"

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "engine/serve/openai/api_error.h"

namespace pagoda::server {

absl::StatusOr<ApiJson> ApiReader::Read(absl::string_view text, const std::string& path) {
  absl::StatusOr<ApiJson> root = JsonBuilder::Read(text);
  const bool is_builders =
      absl::IsInvalidArgument(root.status()) && ReasonOf(root.status()) == Reason::kNone;
  if (!is_builders) return root;
  return BadField(path, root.status().message());
}

absl::Status ApiReader::OnKey(const ApiJson& object, const std::string& /*key*/, size_t depth) {
  size_t& members = members_[depth];
  members = object.empty() ? 1 : members + 1;
  searched_ += members;
  if (members <= kMaxMembers && searched_ <= kMaxSearched) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("has an object with more than ", kMaxMembers,
                                                 " members, or many objects with nearly as many"));
}

}  // namespace pagoda::server

#include "engine/text/split/metaspace.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "engine/text/encoding/bounded_json.h"
#include "engine/text/encoding/utf8.h"

namespace pagoda {

absl::StatusOr<Metaspace> Metaspace::Parse(const nlohmann::json& json, const std::string& path) {
  JsonFields fields(json, path);
  Metaspace metaspace;
  metaspace.replacement = fields.String("replacement", "\u2581");
  // Older files have a flag instead of a scheme.
  const bool add_prefix_space = fields.Bool("add_prefix_space", true);
  const std::string scheme = fields.String("prepend_scheme", add_prefix_space ? "always" : "never");
  metaspace.split = fields.Bool("split", true);
  if (!fields.status().ok()) return fields.status();
  if (metaspace.replacement.empty() ||
      ReadUtf8(metaspace.replacement).size != metaspace.replacement.size()) {
    return BadTokenizer(absl::StrCat(fields.PathOf("replacement"), " is not one character"));
  }
  if (scheme == "always") {
    metaspace.scheme = Scheme::kAlways;
  } else if (scheme == "first") {
    metaspace.scheme = Scheme::kFirst;
  } else if (scheme == "never") {
    metaspace.scheme = Scheme::kNever;
  } else {
    return BadTokenizer(
        absl::StrCat(fields.PathOf("prepend_scheme"), " '", scheme, "' is not supported"));
  }
  return metaspace;
}

}  // namespace pagoda

#include "server/config/byte_count_key.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "base/byte_size.h"

namespace pagoda::server {

ConfigKey ByteCountKey(std::string name, uint64_t* field, std::string zero) {
  auto read = [=](const YAML::Node& node) {
    const std::optional<uint64_t> bytes =
        node.IsScalar() ? ParseByteSize(node.Scalar()) : std::nullopt;
    if (!bytes.has_value()) {
      return WrongValue(node, name, absl::StrCat(kByteSizeForms, ", or 0 for ", zero));
    }
    *field = *bytes;
    return absl::OkStatus();
  };
  return {name, read, [field](YAML::Emitter& out) { out << ByteSizeText(*field); }};
}

}  // namespace pagoda::server

#include "base/adapter_folders.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda {

absl::Status CheckAdapterFolders(absl::Span<const AdapterFolder> folders) {
  if (folders.size() > kMaxAdapters) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat(folders.size(), " adapters; at most ", kMaxAdapters));
  }
  std::set<std::string> names;
  for (const AdapterFolder& folder : folders) {
    if (folder.name.empty() || folder.name.size() > kMaxAdapterNameBytes) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("an adapter's name has ", folder.name.size(),
                                    " bytes; it must have 1 to ", kMaxAdapterNameBytes));
    }
    if (folder.path.empty()) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("adapter '", folder.name, "' has no path"));
    }
    if (!names.insert(folder.name).second) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("there are two adapters '", folder.name, "'"));
    }
  }
  return absl::OkStatus();
}

}  // namespace pagoda

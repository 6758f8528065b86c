#include "engine/request/named_adapters.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"

namespace pagoda {

absl::StatusOr<AdapterIndex> NamedAdapters::Find(const std::string& name) const {
  if (name.empty()) return kNoAdapter;
  const auto found =
      std::find_if(adapters_.begin(), adapters_.end(),
                   [&](const NamedAdapter& adapter) { return adapter.name == name; });
  if (found != adapters_.end()) {
    return AdapterIndex(static_cast<uint32_t>(found - adapters_.begin()));
  }
  return MakeError(Reason::kUnknownAdapter,
                   absl::StrCat("the engine has no adapter '",
                                absl::CHexEscape(name.substr(0, kMaxAdapterNameBytes)), "'"));
}

void NamedAdapters::Apply(GenerateRequest& request) const {
  const absl::StatusOr<AdapterIndex> index = Find(request.adapter);
  PAGODA_CHECK(index.ok(), "the request was checked");
  request.adapter_index = *index;
  if (*index != kNoAdapter) request.name_space.lora_id = adapters_[index->value()].fingerprint;
}

absl::StatusOr<OpenedAdapters> OpenAdapters(absl::Span<const AdapterFolder> folders,
                                            const ModelConfig& config,
                                            const Checkpoint& checkpoint) {
  if (absl::Status status = CheckAdapterFolders(folders); !status.ok()) return status;
  const std::vector<AdaptableModule> modules = AdaptableModulesOf(config, checkpoint);
  OpenedAdapters opened;
  std::vector<NamedAdapter> named;
  for (const AdapterFolder& folder : folders) {
    absl::StatusOr<Adapter> adapter = Adapter::Open(folder.path, modules);
    if (!adapter.ok()) {
      return MakeError(Reason::kInvalidCheckpoint,
                       absl::StrCat("adapter '", folder.name, "': ", adapter.status().message()));
    }
    named.push_back({.name = folder.name, .fingerprint = adapter->fingerprint()});
    opened.adapters.push_back(*std::move(adapter));
  }
  opened.names = NamedAdapters(std::move(named));
  return opened;
}

}  // namespace pagoda

// The LoRA adapters that requests can name.
#ifndef PAGODA_ENGINE_REQUEST_NAMED_ADAPTERS_H_
#define PAGODA_ENGINE_REQUEST_NAMED_ADAPTERS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/adapter_folders.h"
#include "engine/checkpoint/adapter.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/config/model_config.h"
#include "engine/request/generate.h"
#include "engine/words/adapter_index.h"

namespace pagoda {

struct NamedAdapter {
  std::string name;
  uint64_t fingerprint = 0;  // The lora_id of its prompts' namespaces: Adapter::fingerprint.
};

// Immutable; safe to use from several threads.
//
// Invariant: KV that an adapter computed is only in namespaces whose lora_id is the adapter's
// fingerprint, and requests cannot choose that id otherwise (CheckRequest). So neither the model
// nor another adapter matches it, also after a restart with a changed adapter of the same name.
class NamedAdapters {
 public:
  NamedAdapters() = default;
  explicit NamedAdapters(std::vector<NamedAdapter> adapters) : adapters_(std::move(adapters)) {}

  // In the order of AdapterIndex.
  absl::Span<const NamedAdapter> list() const { return adapters_; }

  // kNoAdapter for the empty name. Errors: UNKNOWN_ADAPTER.
  absl::StatusOr<AdapterIndex> Find(const std::string& name) const;
  // Sets the request's adapter_index and namespace. REQUIRES: Find accepts its adapter.
  void Apply(GenerateRequest& request) const;

 private:
  std::vector<NamedAdapter> adapters_;
};

// The adapters in the order of the folders, and their names.
struct OpenedAdapters {
  std::vector<Adapter> adapters;
  NamedAdapters names;
};

// Errors: those of CheckAdapterFolders; those of Adapter::Open, with the adapter's name.
absl::StatusOr<OpenedAdapters> OpenAdapters(absl::Span<const AdapterFolder> folders,
                                            const ModelConfig& config,
                                            const Checkpoint& checkpoint);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_REQUEST_NAMED_ADAPTERS_H_

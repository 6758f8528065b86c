#ifndef PAGODA_BASE_ADAPTER_FOLDERS_H_
#define PAGODA_BASE_ADAPTER_FOLDERS_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace pagoda {

// A LoRA adapter's name, and the folder that PEFT saved it in.
struct AdapterFolder {
  std::string name;
  std::string path;
};

inline constexpr size_t kMaxAdapters = 1024;
inline constexpr size_t kMaxAdapterNameBytes = 256;

// Errors: INVALID_ARGUMENT for too many adapters, for a name that is empty, too long or there
// twice, and for an empty path.
absl::Status CheckAdapterFolders(absl::Span<const AdapterFolder> folders);

}  // namespace pagoda

#endif  // PAGODA_BASE_ADAPTER_FOLDERS_H_

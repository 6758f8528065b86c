// The files of a disk tier: one for each window of a cache.
#ifndef PAGODA_MANAGER_DISK_DISK_FILES_H_
#define PAGODA_MANAGER_DISK_DISK_FILES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pools/file/slab_file.h"
#include "pools/layout.h"

namespace pagoda {

// Thread-safe, as SlabFile.
class DiskFiles {
 public:
  using EngineFactory = std::function<absl::StatusOr<std::unique_ptr<FileEngine>>(
      uint32_t window_index, int fd, uint32_t depth)>;

  struct Options {
    std::string directory;
    std::vector<uint32_t> num_slots;  // By window; 0: the window has no file.
    // For each file: see SlabFile::Options.
    SlabFile::OnForeign on_foreign = SlabFile::OnForeign::kRefuse;
    EngineKind engine = EngineKind::kAuto;
    SlabFile::Caching caching = SlabFile::Caching::kDirect;
    uint32_t depth = 32;
    uint32_t max_write_errors = 8;
    uint32_t max_read_errors = 8;
    absl::Duration lock_patience = absl::Seconds(5);
    EngineFactory make_engine;  // Empty: MakeFileEngine.
  };

  // "<directory>/<cache name>-w<window>.slab".
  static std::string PathOf(const std::string& directory, const CacheLayout& layout,
                            uint32_t window_index);

  // Opens or makes the file of each window that has slots. A file of another cache, model, layout
  // or number of slots is foreign. Errors: InvalidArgument (a number of windows that differs from
  // the layout's, or a cache name that is no file name), and those of SlabFile::Open, with the
  // path.
  static absl::StatusOr<std::unique_ptr<DiskFiles>> Open(const CacheLayout& layout,
                                                         const Options& options);

  const CacheLayout& layout() const { return layout_; }
  uint32_t num_windows() const { return static_cast<uint32_t>(files_.size()); }
  // Null if the window has no file.
  SlabFile* Find(uint32_t window_index) const { return files_[window_index].get(); }

 private:
  explicit DiskFiles(CacheLayout layout) : layout_(std::move(layout)) {}

  const CacheLayout layout_;
  std::vector<std::unique_ptr<SlabFile>> files_;  // By window.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_DISK_DISK_FILES_H_

#include "manager/disk/disk_files.h"

#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "manager/restart/slot_stamps.h"

namespace pagoda {
namespace {

// A file stays the same at any position of its tier in the list.
constexpr Tier kAnyTier{0xff};

slab::Identity IdentityOf(const CacheLayout& layout, uint32_t window_index) {
  const ContentDigest fingerprint = StampsFingerprint(layout, window_index, kAnyTier);
  slab::Identity identity;
  static_assert(sizeof(fingerprint.bytes) == sizeof(identity));
  std::memcpy(identity.data(), fingerprint.bytes.data(), identity.size());
  return identity;
}

bool IsFileName(const std::string& name) {
  return !name.empty() && name[0] != '.' && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

std::string DiskFiles::PathOf(const std::string& directory, const CacheLayout& layout,
                              uint32_t window_index) {
  return absl::StrCat(directory, "/", layout.spec().name, "-w",
                      WindowName(layout.windows()[window_index].window), ".slab");
}

absl::StatusOr<std::unique_ptr<DiskFiles>> DiskFiles::Open(const CacheLayout& layout,
                                                           const Options& options) {
  if (options.num_slots.size() != layout.windows().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_slots has ", Counted(options.num_slots.size(), "entry"),
                     ", but the number of windows is ", layout.windows().size()));
  }
  if (!IsFileName(layout.spec().name)) {
    return absl::InvalidArgumentError(absl::StrCat("the cache's name \"", layout.spec().name,
                                                   "\" cannot be part of a file name"));
  }
  auto files = absl::WrapUnique(new DiskFiles(layout));
  files->files_.resize(options.num_slots.size());
  for (uint32_t w = 0; w < options.num_slots.size(); ++w) {
    if (options.num_slots[w] == 0) continue;
    SlabFile::Options one = {.path = PathOf(options.directory, layout, w),
                             .identity = IdentityOf(layout, w),
                             .num_slots = options.num_slots[w],
                             .payload_bytes = layout.windows()[w].block_bytes(),
                             .on_foreign = options.on_foreign,
                             .engine = options.engine,
                             .caching = options.caching,
                             .depth = options.depth,
                             .max_write_errors = options.max_write_errors,
                             .max_read_errors = options.max_read_errors,
                             .lock_patience = options.lock_patience};
    if (options.make_engine) {
      one.make_engine = [w, make = options.make_engine](int fd, uint32_t depth) {
        return make(w, fd, depth);
      };
    }
    const std::string path = one.path;
    absl::StatusOr<std::unique_ptr<SlabFile>> file = SlabFile::Open(std::move(one));
    if (!file.ok()) {
      return absl::Status(file.status().code(),
                          absl::StrCat("disk tier, ", path, ": ", file.status().message()));
    }
    files->files_[w] = *std::move(file);
  }
  return files;
}

}  // namespace pagoda

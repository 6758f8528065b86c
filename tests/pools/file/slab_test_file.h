// Shared parts of the slab file tests: a folder, blocks, and calls that wait.
#ifndef PAGODA_TESTS_POOLS_FILE_SLAB_TEST_FILE_H_
#define PAGODA_TESTS_POOLS_FILE_SLAB_TEST_FILE_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/types/span.h"
#include "pools/file/slab_file.h"

namespace pagoda {

using Bytes = std::vector<std::byte>;

// A new folder below `parent`. It is removed with the object.
class TestFolder {
 public:
  explicit TestFolder(const std::string& parent) : path_(parent + "/pagoda-slab-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  std::string file() const { return path_ + "/slab"; }

 private:
  std::string path_;
};

// Bytes that differ for every seed.
inline Bytes RandomBytes(uint64_t seed, size_t size) {
  std::mt19937_64 random(seed);
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// No record is the prefix of another.
inline Bytes RecordOf(uint64_t block) {
  const std::string text = absl::StrCat("block ", block, ".");
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return Bytes(data, data + text.size());
}

inline absl::Status WriteBlock(SlabFile& file, uint32_t slot, const Bytes& record,
                               const Bytes& payload) {
  absl::Notification done;
  absl::Status result;
  file.Write(SlotIndex(slot), record, {absl::MakeConstSpan(payload)}, [&](absl::Status status) {
    result = std::move(status);
    done.Notify();
  });
  done.WaitForNotification();
  file.WaitUntilIdle();
  return result;
}

inline absl::StatusOr<Bytes> ReadBlock(SlabFile& file, uint32_t slot, const Bytes& record,
                                       size_t size) {
  absl::Notification done;
  absl::Status result;
  Bytes payload(size);
  file.Read(SlotIndex(slot), record, {absl::MakeSpan(payload)}, [&](absl::Status status) {
    result = std::move(status);
    done.Notify();
  });
  done.WaitForNotification();
  file.WaitUntilIdle();
  if (!result.ok()) return result;
  return payload;
}

// The record of each slot with a valid header.
inline std::map<uint32_t, Bytes> ScanAll(SlabFile& file, SlabFile::ScanResult* counts = nullptr) {
  std::map<uint32_t, Bytes> found;
  absl::StatusOr<SlabFile::ScanResult> result =
      file.Scan([&](SlotIndex slot, SlabFile::Record record,
                    uint64_t) { found.emplace(slot.value(), Bytes(record.begin(), record.end())); },
                nullptr);
  if (counts != nullptr && result.ok()) *counts = *result;
  return found;
}

}  // namespace pagoda

#endif  // PAGODA_TESTS_POOLS_FILE_SLAB_TEST_FILE_H_

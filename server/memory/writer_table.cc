#include "server/memory/writer_table.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/counted.h"
#include "base/error.h"
#include "events/block_hash.h"
#include "pools/memory/own_memory.h"

namespace pagoda::server {

// The memory: a header, then the slots. Every reader is this program on this machine, in this or
// another version. The magic number changes with the layout.
struct WriterTable::Header {
  uint64_t magic;
  uint64_t capacity;
};

struct WriterTable::Slot {
  std::atomic<uint64_t> session_id;  // 0: the slot is free. Written last.
  uint64_t token_low;
  uint64_t token_high;
  uint64_t start_time;
  uint64_t pidfd_inode;
  int64_t pid;
  std::array<char, kMaxTenantBytes> tenant;  // Zeros after the name.
};

namespace {

constexpr uint64_t kMagic = 0x50474457'52543032;  // "PGDWRT02".

static_assert(std::atomic<uint64_t>::is_always_lock_free, "shared between processes");

absl::Status SystemError(const char* call, const std::string& name) {
  return absl::ErrnoToStatus(errno, absl::StrCat(call, "(", name, ")"));
}

absl::StatusOr<FileDescriptor> OpenLocked(const std::string& name, int flags) {
  absl::StatusOr<FileDescriptor> fd = OpenOwnMemory(name, O_RDWR | flags);
  if (!fd.ok()) return fd.status();
  if (flock(fd->get(), LOCK_EX | LOCK_NB) != 0) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("shared memory ", name, " belongs to a running process"));
  }
  return fd;
}

// Resizes the memory to `bytes` and maps it. Sets `fitted` to whether it already had that size.
absl::StatusOr<void*> ReserveAndMap(int fd, const std::string& name, size_t bytes, bool* fitted) {
  struct stat info;
  if (fstat(fd, &info) != 0) return SystemError("fstat", name);
  *fitted = static_cast<size_t>(info.st_size) == bytes;
  // Reserve before truncating: if memory is short, the existing contents stay whole.
  absl::Status reserved = ReserveMemory(fd, name, bytes);
  if (!reserved.ok()) return reserved;
  if (!*fitted && ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    return SystemError("ftruncate", name);
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return SystemError("mmap", name);
  // A mapping holds the lock as a descriptor does. Without this a child's copy would hold it after
  // this process ends.
  madvise(memory, bytes, MADV_DONTFORK);
  return memory;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WriterTable>> WriterTable::Open(const std::string& name,
                                                               size_t capacity) {
  absl::StatusOr<FileDescriptor> fd = OpenLocked(name, 0);
  const bool was_there = !absl::IsNotFound(fd.status());
  if (!was_there) fd = OpenLocked(name, O_CREAT | O_EXCL);
  if (!fd.ok()) return fd.status();
  const size_t bytes = sizeof(Header) + capacity * sizeof(Slot);
  bool fitted = false;
  const absl::StatusOr<void*> memory = ReserveAndMap(fd->get(), name, bytes, &fitted);
  if (!memory.ok()) {
    if (!was_there) shm_unlink(name.c_str());
    return memory.status();
  }
  auto* header = static_cast<Header*>(*memory);
  const bool found = fitted && header->magic == kMagic && header->capacity == capacity;
  if (!found) {
    std::memset(*memory, 0, bytes);
    header->capacity = capacity;
  }
  return absl::WrapUnique(
      new WriterTable(name, *std::move(fd), *memory, capacity, found, was_there));
}

WriterTable::WriterTable(std::string name, FileDescriptor fd, void* memory, size_t capacity,
                         bool found, bool was_there)
    : name_(std::move(name)),
      fd_(std::move(fd)),
      header_(static_cast<Header*>(memory)),
      slots_(reinterpret_cast<Slot*>(header_ + 1)),
      capacity_(capacity),
      found_(found),
      was_there_(was_there) {
  for (size_t row = capacity_; row-- > 0;) {
    if (slots_[row].session_id.load(std::memory_order_acquire) == 0) free_.push_back(row);
  }
}

WriterTable::~WriterTable() {
  munmap(header_, sizeof(Header) + capacity_ * sizeof(Slot));
  if (leave_ == Leave::kRemoved) shm_unlink(name_.c_str());
}

void WriterTable::Begin() { header_->magic = kMagic; }

std::vector<size_t> WriterTable::Rows() const {
  std::vector<size_t> rows;
  for (size_t row = 0; row < capacity_; ++row) {
    if (slots_[row].session_id.load(std::memory_order_acquire) != 0) rows.push_back(row);
  }
  return rows;
}

WriterRow WriterTable::Get(size_t row) const {
  PAGODA_CHECK(row < capacity_, "a row of the table");
  const Slot& slot = slots_[row];
  const uint64_t session = slot.session_id.load(std::memory_order_acquire);
  PAGODA_CHECK(session != 0, "a row that counts");
  return {.process = {.pid = static_cast<pid_t>(slot.pid),
                      .start_time = slot.start_time,
                      .pidfd_inode = slot.pidfd_inode},
          .session = {SessionId(session), SessionToken(slot.token_low, slot.token_high)},
          .tenant = std::string(slot.tenant.data(), strnlen(slot.tenant.data(), kMaxTenantBytes))};
}

absl::StatusOr<size_t> WriterTable::Add(const WriterRow& row) {
  PAGODA_CHECK(header_->magic == kMagic, "the table was found, or begun");
  PAGODA_CHECK(row.session.id.value() != 0, "sessions count from 1");
  PAGODA_CHECK(row.tenant.size() <= kMaxTenantBytes, "a tenant's name is bounded");
  if (free_.empty()) {
    return absl::ResourceExhaustedError(absl::StrCat("recorded: ", Counted(capacity_, "writer"),
                                                     " of the pools, which is the limit"));
  }
  const size_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  slot.token_low = row.session.token.low();
  slot.token_high = row.session.token.high();
  slot.start_time = row.process.start_time;
  slot.pidfd_inode = row.process.pidfd_inode;
  slot.pid = row.process.pid;
  slot.tenant = {};
  std::copy(row.tenant.begin(), row.tenant.end(), slot.tenant.begin());
  slot.session_id.store(row.session.id.value(), std::memory_order_release);
  return index;
}

void WriterTable::Remove(size_t row) {
  PAGODA_CHECK(row < capacity_, "a row of the table");
  slots_[row].session_id.store(0, std::memory_order_release);
  free_.push_back(row);
}

}  // namespace pagoda::server

#include "pools/memory/huge_page_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "pools/memory/own_memory.h"

// For kernels newer than the C library.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif
#ifndef MFD_HUGE_SHIFT
#define MFD_HUGE_SHIFT 26
#endif

namespace pagoda {
namespace {

constexpr uint64_t kMostWaste = 8;  // A divisor: at most an eighth of the size.

uint64_t RoundUp(uint64_t bytes, uint64_t page_bytes) {
  return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

void Add(std::string* text, const std::string& why) {
  absl::StrAppend(text, text->empty() ? "" : "; ", why);
}

// A memfd that only this user can open again. A new memfd has mode 0777; a process with a
// descriptor for reading could open it for writing.
absl::StatusOr<FileDescriptor> MakeMemfd(const std::string& name, unsigned flags,
                                         uint64_t size_bytes) {
  const char* const label = name.c_str() + (name.starts_with('/') ? 1 : 0);
  FileDescriptor fd(memfd_create(label, flags | MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL));
  if (!fd.valid() && errno == EINVAL) {  // The kernel does not know MFD_NOEXEC_SEAL.
    fd = FileDescriptor(memfd_create(label, flags | MFD_CLOEXEC | MFD_ALLOW_SEALING));
  }
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "memfd_create");
  if (fchmod(fd.get(), kOwnerOnly) != 0) return absl::ErrnoToStatus(errno, "fchmod");
  if (ftruncate(fd.get(), static_cast<off_t>(size_bytes)) != 0) {
    return absl::ErrnoToStatus(errno, "ftruncate");
  }
  // Otherwise a client with a descriptor for writing could truncate memory that others have mapped.
  fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  return fd;
}

absl::StatusOr<NamelessMemory> MapMemfd(const std::string& name, unsigned flags,
                                        uint64_t size_bytes, MemoryPages pages) {
  absl::StatusOr<FileDescriptor> fd = MakeMemfd(name, flags, size_bytes);
  if (!fd.ok()) return fd.status();
  absl::StatusOr<std::byte*> data =
      MapShared(fd->get(), size_bytes, name, MemoryAccess::kReadWrite);
  if (!data.ok()) return data.status();
  return NamelessMemory{
      .fd = *std::move(fd), .data = *data, .size_bytes = size_bytes, .pages = pages};
}

// Returns the memory, or the reason why it is not available.
absl::StatusOr<NamelessMemory> MakeHugetlb(const std::string& name, uint64_t size_bytes,
                                           MemoryPages pages, const HugePageProbe& probe) {
  const uint64_t page_bytes = HugetlbPageBytes(pages);
  if (size_bytes > UINT64_MAX - page_bytes) return absl::OutOfRangeError("it is too large");
  const uint64_t whole_bytes = RoundUp(size_bytes, page_bytes);
  if (whole_bytes - size_bytes > size_bytes / kMostWaste) {
    return absl::OutOfRangeError(absl::StrCat(size_bytes, " bytes do not fill pages of that size"));
  }
  const uint64_t free_pages = probe.FreePages(page_bytes);
  if (free_pages < whole_bytes / page_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("it needs ", whole_bytes / page_bytes,
                                                     " pages and ", free_pages, " are free"));
  }
  const unsigned size_flag = static_cast<unsigned>(__builtin_ctzll(page_bytes)) << MFD_HUGE_SHIFT;
  absl::StatusOr<NamelessMemory> memory =
      MapMemfd(name, MFD_HUGETLB | size_flag, whole_bytes, pages);
  if (!memory.ok()) return memory.status();
  absl::Status taken =
      TakeWhereLimited(memory->data, whole_bytes, page_bytes, MemoryAccess::kReadWrite, probe);
  if (taken.ok()) return memory;
  munmap(memory->data, whole_bytes);
  return taken;
}

absl::StatusOr<NamelessMemory> MakeTransparent(const std::string& name, uint64_t size_bytes,
                                               const PageRequest& request) {
  if (size_bytes < kTransparentPageBytes) return absl::OutOfRangeError("it is too small");
  if (!TransparentWithoutName(request.system())) {
    const std::string setting = request.system().ShmemEnabled();
    return absl::UnavailableError(setting.empty()
                                      ? "this kernel has none for shared memory"
                                      : absl::StrCat("the system's shmem_enabled is ", setting));
  }
  if (request.reservation == Reservation::kWhole) {
    // This memory lies on no file system that can be full. If it exceeds the free memory, the
    // kernel kills a process.
    const absl::StatusOr<uint64_t> free_bytes = FreeSharedMemoryBytes();
    if (!free_bytes.ok() || *free_bytes < size_bytes) {
      return absl::ResourceExhaustedError("there is not enough free memory");
    }
  }
  absl::StatusOr<NamelessMemory> memory = MapMemfd(name, 0, size_bytes, MemoryPages::kTransparent);
  if (!memory.ok()) return memory.status();
  absl::Status asked = AskForTransparent(memory->data, size_bytes, request.reservation);
  if (asked.ok()) return memory;
  munmap(memory->data, size_bytes);
  return asked;
}

bool Takes(const PageRequest& request, MemoryPages pages) {
  switch (request.huge_pages) {
    case HugePages::kAuto:
    case HugePages::k1GiB:
      return true;
    case HugePages::k2MiB:
      return pages != MemoryPages::k1GiB;
    case HugePages::kOff:
      return false;
  }
  return false;
}

}  // namespace

uint64_t HugetlbPageBytesOf(int fd) {
  struct statfs fs;
  if (fstatfs(fd, &fs) != 0 || fs.f_type != HUGETLBFS_MAGIC) return 0;
  return static_cast<uint64_t>(fs.f_bsize);
}

absl::StatusOr<std::byte*> MapShared(int fd, uint64_t size_bytes, const std::string& name,
                                     MemoryAccess access) {
  const int protection = access == MemoryAccess::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  const auto failed = [&] { return absl::ErrnoToStatus(errno, absl::StrCat("mmap(", name, ")")); };
  void* data = nullptr;
  const bool by_kernel = size_bytes < kTransparentPageBytes || HugetlbPageBytesOf(fd) != 0 ||
                         size_bytes > SIZE_MAX - kTransparentPageBytes;
  if (by_kernel) {  // The kernel aligns pages of its pool itself.
    data = mmap(nullptr, size_bytes, protection, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) return failed();
  } else {
    // Reserves one huge page more than needed, then unmaps both ends.
    const uint64_t place_bytes = size_bytes + kTransparentPageBytes;
    void* const place =
        mmap(nullptr, place_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) return failed();
    const auto begin = reinterpret_cast<uint64_t>(place);
    const uint64_t aligned = RoundUp(begin, kTransparentPageBytes);
    data = mmap(reinterpret_cast<void*>(aligned), size_bytes, protection, MAP_SHARED | MAP_FIXED,
                fd, 0);
    if (data == MAP_FAILED) {
      absl::Status status = failed();
      munmap(place, place_bytes);
      return status;
    }
    const uint64_t end = RoundUp(aligned + size_bytes, static_cast<uint64_t>(getpagesize()));
    if (aligned > begin) munmap(place, aligned - begin);
    if (begin + place_bytes > end) {
      munmap(reinterpret_cast<void*>(end), begin + place_bytes - end);
    }
  }
  // A child's mapping would outlive this process; then nothing would know that the child can write.
  if (access == MemoryAccess::kReadWrite) madvise(data, size_bytes, MADV_DONTFORK);
  return static_cast<std::byte*>(data);
}

absl::Status TakeWhereLimited(std::byte* data, uint64_t size_bytes, uint64_t page_bytes,
                              MemoryAccess access, const HugePageProbe& probe) {
  if (!probe.LimitsFaults(page_bytes)) return absl::OkStatus();
  const int advice = access == MemoryAccess::kRead ? MADV_POPULATE_READ : MADV_POPULATE_WRITE;
  const int error = TakePages(data, size_bytes, advice);
  if (error == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("a cgroup, a cpuset or a memory policy of this process refuses some of its ",
                   size_bytes / page_bytes, " pages: ", std::strerror(error)));
}

absl::Status AskForTransparent(std::byte* data, uint64_t size_bytes, Reservation reservation) {
  if (madvise(data, size_bytes, MADV_HUGEPAGE) != 0) {
    return absl::ErrnoToStatus(errno, "madvise(MADV_HUGEPAGE)");
  }
  if (reservation == Reservation::kSparse) return absl::OkStatus();
  // Takes the pages through the mapping: posix_fallocate takes small ones if the setting is
  // "advise".
  const int error = TakePages(data, size_bytes, MADV_POPULATE_WRITE);
  if (error == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(error, "madvise(MADV_POPULATE_WRITE)");
}

absl::Status Collapse(std::byte* data, uint64_t size_bytes) {
  const uint64_t whole_bytes = size_bytes / kTransparentPageBytes * kTransparentPageBytes;
  if (whole_bytes == 0) return absl::OutOfRangeError("it is too small");
  if (madvise(data, whole_bytes, MADV_POPULATE_WRITE) != 0 ||
      madvise(data, whole_bytes, MADV_COLLAPSE) != 0) {
    return absl::ErrnoToStatus(errno, "madvise(MADV_COLLAPSE)");
  }
  return absl::OkStatus();
}

std::optional<NamelessMemory> MakeNamelessMemory(const std::string& name, uint64_t size_bytes,
                                                 const PageRequest& request,
                                                 std::string* shortfall) {
  for (const MemoryPages pages : {MemoryPages::k1GiB, MemoryPages::k2MiB}) {
    if (!Takes(request, pages)) continue;
    absl::StatusOr<NamelessMemory> memory = MakeHugetlb(name, size_bytes, pages, request.system());
    if (memory.ok()) return *std::move(memory);
    Add(shortfall, absl::StrCat("no ", std::string(PagesText(pages)), ", because ",
                                std::string(memory.status().message())));
  }
  if (request.huge_pages != HugePages::kOff) {
    absl::StatusOr<NamelessMemory> memory = MakeTransparent(name, size_bytes, request);
    if (memory.ok()) return *std::move(memory);
    Add(shortfall, absl::StrCat("no transparent ones without a name, because ",
                                std::string(memory.status().message())));
  }
  if (request.reservation == Reservation::kWhole) return std::nullopt;
  absl::StatusOr<NamelessMemory> memory = MapMemfd(name, 0, size_bytes, MemoryPages::kPlain);
  if (memory.ok()) return *std::move(memory);
  Add(shortfall,
      absl::StrCat("it is not sparse, because ", std::string(memory.status().message())));
  return std::nullopt;
}

}  // namespace pagoda

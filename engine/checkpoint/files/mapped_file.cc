#include "engine/checkpoint/files/mapped_file.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"
#include "base/file_descriptor.h"

namespace pagoda {

// Destroyed by one thread, while others search the list.
struct MappedFile::Mapping {
  Mapping(FileDescriptor descriptor, const struct stat& info, std::byte* data);
  ~Mapping();

  bool Holds(const void* address) const {
    return address >= begin && address < begin + at_open.st_size;
  }

  const FileDescriptor fd;
  const struct stat at_open;
  std::byte* const begin;
  std::atomic<bool> damaged = false;
  // Guarded by the list's lock.
  Mapping* next = nullptr;
  // The pointer to this mapping: the neighbour's `next`, or the list's head.
  Mapping** link = nullptr;
  static Mapping* first;

  static void OnBusError(int signal, siginfo_t* info, void* context);
  static void InstallHandler();
};

MappedFile::Mapping* MappedFile::Mapping::first = nullptr;

namespace {

// Guards the list of mappings. A handler of a signal may take it: no holder touches mapped bytes.
class ListLock {
 public:
  void lock() {
    while (held_.test_and_set(std::memory_order_acquire)) sched_yield();
  }
  void unlock() { held_.clear(std::memory_order_release); }

 private:
  std::atomic_flag held_ = ATOMIC_FLAG_INIT;
};
ListLock list_lock;

uintptr_t page_bytes;
struct sigaction previous_action;

}  // namespace

// Calls only functions that are safe in a handler of a signal.
void MappedFile::Mapping::OnBusError(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  if (info->si_code == BUS_ADRERR) {
    const std::lock_guard<ListLock> lock(list_lock);
    for (Mapping* mapping = first; mapping != nullptr; mapping = mapping->next) {
      if (!mapping->Holds(info->si_addr)) continue;
      mapping->damaged.store(true);  // Before another thread can read the zeroes.
      // Up to the end: one signal for each page of a large file would take minutes.
      const auto page = reinterpret_cast<uintptr_t>(info->si_addr) & ~(page_bytes - 1);
      const auto end = reinterpret_cast<uintptr_t>(mapping->begin) +
                       static_cast<uintptr_t>(mapping->at_open.st_size);
      const void* zeroes =
          mmap(reinterpret_cast<void*>(page), end - page, PROT_READ,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, /*fd=*/-1, 0);
      errno = error;
      if (zeroes != MAP_FAILED) return;
      break;
    }
  }
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
    previous_action.sa_sigaction(signal, info, context);
  } else if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
    previous_action.sa_handler(signal);
  } else {
    // The process ends when the handler returns, as it would without the handler.
    ::signal(signal, SIG_DFL);
    raise(signal);
  }
}

void MappedFile::Mapping::InstallHandler() {
  page_bytes = static_cast<uintptr_t>(getpagesize());
  struct sigaction action = {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  // The previous action is known before the handler can need it.
  PAGODA_CHECK(
      sigaction(SIGBUS, nullptr, &previous_action) == 0 && sigaction(SIGBUS, &action, nullptr) == 0,
      "SIGBUS can have a handler");
}

MappedFile::Mapping::Mapping(FileDescriptor descriptor, const struct stat& info, std::byte* data)
    : fd(std::move(descriptor)), at_open(info), begin(data) {
  static const bool installed = (InstallHandler(), true);
  (void)installed;
  const std::lock_guard<ListLock> lock(list_lock);
  next = first;
  link = &first;
  if (next != nullptr) next->link = &next;
  first = this;
}

MappedFile::Mapping::~Mapping() {
  {
    const std::lock_guard<ListLock> lock(list_lock);
    *link = next;
    if (next != nullptr) next->link = link;
  }
  munmap(begin, static_cast<size_t>(at_open.st_size));
}

absl::StatusOr<MappedFile> MappedFile::Open(std::string path) {
  const auto refuse = [&](const char* why) {
    return MakeError(Reason::kInvalidCheckpoint, absl::StrCat(path, ": ", why));
  };
  FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return refuse(std::strerror(errno));

  struct stat info;
  if (fstat(fd.get(), &info) != 0) return refuse(std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return refuse("not a regular file");
  if (info.st_size == 0) return refuse("the file is empty");
  void* const data =
      mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) return refuse(std::strerror(errno));
  return MappedFile(std::move(path),
                    std::make_unique<Mapping>(std::move(fd), info, static_cast<std::byte*>(data)));
}

absl::Status MappedFile::CheckUnchanged() const {
  const struct stat& then = mapping_->at_open;
  struct stat now;
  if (fstat(mapping_->fd.get(), &now) != 0 || now.st_size != then.st_size ||
      now.st_mtim.tv_sec != then.st_mtim.tv_sec || now.st_mtim.tv_nsec != then.st_mtim.tv_nsec) {
    mapping_->damaged.store(true);
  }
  if (!mapping_->damaged.load()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      path_, ": the file was cut or changed, or its disk failed, while it was in use; ",
      "restore the file and start this process again. To change a model that is ",
      "served, put a new file in the old one's place (rename)"));
}

MappedFile::MappedFile(std::string path, std::unique_ptr<Mapping> mapping)
    : path_(std::move(path)),
      mapping_(std::move(mapping)),
      bytes_(mapping_->begin, static_cast<size_t>(mapping_->at_open.st_size)) {}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      mapping_(std::move(other.mapping_)),
      bytes_(std::exchange(other.bytes_, {})) {}

MappedFile::~MappedFile() = default;

}  // namespace pagoda

// A file of fixed-size slots with checksums. A disk tier keeps its blocks in it.
#ifndef PAGODA_POOLS_FILE_SLAB_FILE_H_
#define PAGODA_POOLS_FILE_SLAB_FILE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/file_descriptor.h"
#include "pools/file/file_engine.h"
#include "pools/file/slab_format.h"
#include "pools/types.h"

namespace pagoda {

enum class SlabMode : uint8_t {
  kReadWrite,
  kReadOnly,  // Too many writes failed. Reads, Erase and Reset still work.
  kOff,       // Too many reads failed, the file is gone, or a Reset failed. All operations fail.
};

// Counts since Open.
struct SlabStats {
  std::string engine;   // "io_uring" or "threads".
  bool direct = false;  // O_DIRECT is set; else I/O goes through the kernel's page cache.
  SlabMode mode = SlabMode::kReadWrite;
  std::string mode_reason;   // Why the mode is not kReadWrite.
  bool found_empty = false;  // The file existed and held nothing. Open has filled it as a new one.
  uint64_t generation = 0;
  uint64_t writes = 0;  // Blocks written. The next field counts their payload bytes.
  uint64_t bytes_written = 0;
  uint64_t reads = 0;  // Blocks read that passed their checks.
  uint64_t bytes_read = 0;
  uint64_t bounced = 0;       // Blocks copied through a buffer because of their alignment.
  uint64_t write_errors = 0;  // Errors of the system, at writes and syncs.
  uint64_t read_errors = 0;   // Errors of the system.
  uint64_t bad_blocks = 0;    // Reads that found other bytes than the block's.
  uint32_t quarantined_slots = 0;
  size_t queued = 0;   // Now.
  size_t running = 0;  // Now.
};

// A file of slots. Thread-safe.
//
// 1. A read succeeds only with a whole block that was written into the slot under a record with the
//    reader's prefix: slot, file, generation, prefix, length and checksums fit. Torn, flipped and
//    swapped bytes and blocks of another prefix are DataLoss. A slot without a block is NotFound. A
//    block that Erase or Reset has removed is never read again.
// 2. After a crash of the process or the machine, a slot holds a whole block or none. Without Sync
//    that is the block of any write since the last Sync, or the block before these writes. With
//    Sync it is the block that Sync found, if no later write touched the slot.
// 3. When Erase or Reset has returned OK, the removed blocks stay removed after any later crash.
//    The same holds for every older block of a slot that was overwritten before the call, even if
//    that write failed.
// 4. Every Write and Read is reported exactly once, on a thread of the engine or within the call,
//    without a lock of this object. A completion may call Write, Read and stats(), and no other
//    function of this object.
// 5. A failed write quarantines its slot until the file is opened again. Failures degrade the file
//    (see SlabMode); they never stop the process.
//
// Writes are not synced, because a backup copy need not be durable: the checksums find blocks that
// a power cut tears. The queue has no bound (see Transfers). At most `depth` blocks are in flight.
class SlabFile {
 public:
  enum class OnForeign : uint8_t {
    kRefuse,   // A file of another identity, format or shape, or a damaged one, is an error.
    kReplace,  // The file's content is dropped.
  };
  enum class Caching : uint8_t {
    kDirect,  // O_DIRECT, if the file system supports it.
    kBuffered,
  };
  // Makes the engine of the open file. For tests that use a faulty disk.
  using EngineFactory =
      std::function<absl::StatusOr<std::unique_ptr<FileEngine>>(int fd, uint32_t depth)>;

  struct Options {
    std::string path;
    slab::Identity identity = {};  // The layout's identity. A file of another identity is foreign.
    uint32_t num_slots = 0;        // At least 1.
    uint64_t payload_bytes = 0;    // The size of the largest block. At least 1.
    OnForeign on_foreign = OnForeign::kRefuse;
    EngineKind engine = EngineKind::kAuto;
    Caching caching = Caching::kDirect;
    uint32_t depth = 32;  // 1 to 1024. Each takes a page or two, and a payload if bounced.
    uint32_t max_write_errors = 8;  // After this many the file becomes read-only.
    uint32_t max_read_errors = 8;   // After this many the file is turned off.
    // How long Open waits for another owner's lock. The io_uring of a killed process keeps the lock
    // until its last write has ended, some milliseconds later. None of its writes can thus reach
    // the file after Open.
    absl::Duration lock_patience = absl::Seconds(5);
    EngineFactory make_engine;  // Empty: MakeFileEngine.
  };

  // Creates the file and reserves its space, or opens the existing file. Locks it until this object
  // is destroyed. Reads only the superblocks. Errors: InvalidArgument (options; a size beyond the
  // largest file), FailedPrecondition (another owner; a foreign file, with the difference),
  // ResourceExhausted (no space), PermissionDenied (see slab::OpenLocked), Unavailable (no
  // io_uring), those of the system.
  static absl::StatusOr<std::unique_ptr<SlabFile>> Open(Options options);
  // Calls Stop. Does not sync.
  ~SlabFile();

  uint32_t num_slots() const { return options_.num_slots; }
  uint64_t payload_bytes() const { return options_.payload_bytes; }

  using Record = absl::Span<const std::byte>;
  using Done = std::function<void(absl::Status)>;

  // Writes a block: the concatenated pieces. The record identifies the block; it is copied, and has
  // at most slab::kMaxRecordBytes. The pieces must not change until `done` begins. If all addresses
  // and lengths are multiples of the disk's alignment (512 or 4096), the pieces go to the disk
  // directly, else through a buffer. The caller's thread computes the block's checksum. REQUIRES:
  // the slot exists and has no unfinished operation; 1 to payload_bytes() bytes. Reports:
  // FailedPrecondition (the mode; the slot is quarantined), Cancelled (Stop), those of the system.
  // After an error of the system the slot is quarantined and holds no block.
  void Write(SlotIndex slot, Record record, absl::Span<const absl::Span<const std::byte>> pieces,
             Done done);
  // Reads the block of that length whose record begins with `record_prefix`. If the first bytes of
  // records are unique (for example the number of the write), they suffice as a prefix. An empty
  // prefix fits every block. After an error the pieces' bytes are unspecified. REQUIRES: as Write,
  // but a slot can have up to 65,534 reads at the same time. Reports: NotFound (no block), DataLoss
  // (another block, or not a whole one), FailedPrecondition (off; quarantined), Cancelled, those of
  // the system.
  void Read(SlotIndex slot, Record record_prefix, absl::Span<const absl::Span<std::byte>> pieces,
            Done done);

  // Removes the slots' blocks durably (invariant 3); all slots of a call share one sync. Waits for
  // the operations submitted before; later operations wait for it. If a caller drops a block
  // without Erase, the block is found again after a restart, until another block overwrites its
  // slot. REQUIRES: the slots exist and have no operations. Errors: those of the system. Then the
  // blocks can return after a restart; call Reset to remove them.
  absl::Status Erase(absl::Span<const SlotIndex> slots);
  // Removes all blocks durably by starting a new generation: two pages, two syncs. Waits as Erase
  // does. Errors: those of the system. Then the file is off, and its blocks can return after a
  // restart. It may be called again.
  absl::Status Reset();
  // Makes all reported writes durable. Errors: NotFound or DataLoss (the file was removed or
  // truncated, and is now off), those of fdatasync (the file is now read-only).
  absl::Status Sync();
  // Turns the file off if its path no longer names it, or if it was truncated. Two system calls;
  // waits for no operation.
  void CheckPresent();

  struct ScanResult {
    uint64_t blocks = 0;
    uint64_t empty = 0;
    uint64_t outdated = 0;  // Blocks of an earlier generation, or of a file that this one replaced.
    uint64_t damaged = 0;   // Not a header, or another slot's header.
    uint64_t unreadable = 0;  // Quarantined slots, some of them by this scan.
  };
  using OnBlock = absl::FunctionRef<void(SlotIndex slot, Record record, uint64_t payload_bytes)>;
  using OnProgress = std::function<void(uint64_t scanned, uint64_t slots)>;  // May be empty.

  // Calls `on_block` for each slot with a valid header, in ascending order, on this thread. A
  // payload can still be torn; Read detects it. Reads one page per slot, `depth` pages at the same
  // time. Waits as Erase does. Ends early with these errors: FailedPrecondition (the file is off,
  // or failed reads of this scan turn it off), Cancelled (Stop).
  absl::StatusOr<ScanResult> Scan(OnBlock on_block, const OnProgress& on_progress);

  // Waits until every submitted operation is reported.
  void WaitUntilIdle();
  // Lets running operations end, except a scan, and reports waiting ones as CANCELLED. Later
  // operations are refused as Cancelled. When Stop has returned, no completion runs or will run,
  // even if another thread called it first.
  void Stop();
  SlabStats stats() const;

 private:
  struct Operation;
  struct Buffer;
  struct Ended;
  class Exclusive;

  SlabFile(Options options, FileDescriptor fd, std::unique_ptr<FileEngine> engine,
           uint32_t alignment);

  // Parts of Open.
  absl::Status Load(std::optional<uint64_t> found_bytes);
  absl::Status Make();
  absl::Status WriteSuperblocks();
  absl::Status ReadSuperblocks(uint64_t size_bytes, slab::Page pages[slab::kNumSuperblocks]);

  void Enqueue(std::unique_ptr<Operation> operation);
  absl::Status Admit(const Operation& operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartWaiting();
  void Start(std::unique_ptr<Operation> operation, Buffer* buffer);
  void End(std::unique_ptr<Operation> operation, Buffer* buffer, int error);
  void Report(std::unique_ptr<Operation> operation, absl::Status status);
  absl::Status EndWrite(const Operation& operation, int error);
  absl::Status EndRead(Operation& operation, Buffer& buffer, int error);
  absl::Status CheckBlock(const Operation& operation, const Buffer& buffer) const;
  bool IsAligned(const Operation& operation) const;

  // Keeps up to `depth` requests in flight. Calls `ended` for each, in order, on this thread. After
  // `ended` returns false, no request begins and `ended` is not called again.
  void RunInOrder(uint64_t count, absl::FunctionRef<FileRequest(uint64_t i)> make,
                  absl::FunctionRef<bool(uint64_t i, int error)> ended);
  int RunOne(FileRequest::Kind kind, uint64_t offset_bytes, std::byte* page);
  int RunSync();
  absl::Status SyncAndCheck();
  absl::Status DegradeIfAbsent();
  absl::Status CheckScan() const;
  void CountWriteError(int error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountReadError() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns false if the slot was already quarantined.
  bool Quarantine(SlotIndex slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Degrade(SlabMode mode, std::string reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayEnter() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !exclusive_; }
  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return queue_.empty() && unreported_ == 0;
  }
  bool HasNoOrders() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return IsIdle() && held_.empty() && !exclusive_;
  }

  const Options options_;
  const uint32_t alignment_;  // The alignment of pieces in bytes; 1 with buffered I/O.
  FileDescriptor fd_;
  // Written under Exclusive. Read by operations, or under Exclusive.
  slab::Superblock superblock_;

  mutable absl::Mutex mutex_;
  absl::Mutex sync_mutex_;                        // Allows one sync at a time. Before mutex_.
  std::vector<std::unique_ptr<Buffer>> buffers_;  // `depth` buffers.
  std::vector<Buffer*> free_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::unique_ptr<Operation>> queue_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::unique_ptr<Operation>> held_ ABSL_GUARDED_BY(mutex_);  // While exclusive.
  size_t unreported_ ABSL_GUARDED_BY(mutex_) = 0;  // Started, and `done` has not returned.
  bool exclusive_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool sync_failed_ ABSL_GUARDED_BY(mutex_) = false;       // Since the last Reset.
  std::vector<uint16_t> users_ ABSL_GUARDED_BY(mutex_);    // By slot: reads, or kWriter.
  std::vector<bool> quarantined_ ABSL_GUARDED_BY(mutex_);  // By slot.
  std::vector<SlotIndex> untold_ ABSL_GUARDED_BY(mutex_);  // Failed writes without a tombstone.
  SlabStats stats_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<FileEngine> engine_;  // Destroyed first.
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_FILE_SLAB_FILE_H_

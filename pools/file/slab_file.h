// A file of fixed-size slots that checks itself: what a tier on a disk keeps its blocks in.
#ifndef PAGODA_POOLS_FILE_SLAB_FILE_H_
#define PAGODA_POOLS_FILE_SLAB_FILE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
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
#include "pools/file/file_engine.h"
#include "pools/file/slab_format.h"
#include "pools/file_descriptor.h"
#include "pools/types.h"

namespace pagoda {

enum class SlabMode : uint8_t {
  kReadWrite,
  kReadOnly,  // Too many writes failed. Reads, Erase and Reset still work.
  kOff,       // Too many reads failed, the file is gone, or a Reset failed. Nothing is served.
};

// Counts since Open.
struct SlabStats {
  std::string engine;   // "io_uring" or "threads".
  bool direct = false;  // O_DIRECT; else the kernel's page cache is in between.
  SlabMode mode = SlabMode::kReadWrite;
  std::string mode_reason;  // Why it is not kReadWrite.
  uint64_t generation = 0;
  uint64_t writes = 0;  // Blocks that were written, and bytes of their payloads.
  uint64_t bytes_written = 0;
  uint64_t reads = 0;  // Blocks that were read and were right.
  uint64_t bytes_read = 0;
  uint64_t bounced = 0;       // Blocks that went over a buffer of ours for their alignment.
  uint64_t write_errors = 0;  // Of the system, at writes and syncs.
  uint64_t read_errors = 0;   // Of the system.
  uint64_t bad_blocks = 0;    // Reads whose bytes were not those of the block.
  uint32_t quarantined_slots = 0;
  size_t queued = 0;   // Now.
  size_t running = 0;  // Now.
};

// Thread-safe.
//
// 1. A read succeeds only with a whole block that was written into the slot under a record with the
//    reader's prefix: slot, file, generation, prefix, length and checksums fit. Torn, flipped and
//    swapped bytes and blocks of another prefix are DataLoss, and a slot without a block is
//    NotFound. A block that Erase or Reset has removed is never read again.
// 2. After a crash of the process or the machine a slot holds a whole block or none. Without Sync
//    that is the block of any write since the last Sync, or the block before them. With Sync it is
//    the block that Sync found, if no later write touched the slot.
// 3. When Erase or Reset has returned OK, what it removed is gone for good, whatever crashes
//    later. So is every older block of a slot that was overwritten before the call: also where that
//    write failed.
// 4. Every Write and Read is reported exactly once, on a thread of the engine's or within the call,
//    without a lock of this object. A completion may call Write, Read and stats(), and nothing else
//    here.
// 5. A failed write quarantines its slot until the file is opened again. The file degrades, it
//    never stops the process: see SlabMode.
//
// A write is not synced, because nobody needs a backup copy to be durable: the checksums find what
// a power cut tears. The queue has no bound of its own (see Transfers); at most `depth` blocks are
// in flight.
class SlabFile {
 public:
  enum class OnForeign : uint8_t {
    kRefuse,   // A file of another identity, format or shape, or a damaged one, is an error.
    kReplace,  // Its content is dropped.
  };
  enum class Caching : uint8_t {
    kDirect,  // O_DIRECT, where the file system has it.
    kBuffered,
  };
  // For tests that put a faulty disk in place: makes the engine of the open file.
  using EngineFactory =
      std::function<absl::StatusOr<std::unique_ptr<FileEngine>>(int fd, uint32_t depth)>;

  struct Options {
    std::string path;
    slab::Identity identity = {};  // Of the layout: who opens it under another one is refused.
    uint32_t num_slots = 0;        // At least 1.
    uint64_t payload_bytes = 0;    // The most that a block has. At least 1.
    OnForeign on_foreign = OnForeign::kRefuse;
    EngineKind engine = EngineKind::kAuto;
    Caching caching = Caching::kDirect;
    uint32_t depth = 32;  // 1 to 1024. Each takes a page or two, and a payload if bounced.
    uint32_t max_write_errors = 8;  // So many make the file read-only.
    uint32_t max_read_errors = 8;   // So many turn it off.
    // How long to wait for another owner's lock. A killed process's ring keeps the lock until its
    // last write has ended, some milliseconds later; so none of its writes lands in our time.
    absl::Duration lock_patience = absl::Seconds(5);
    EngineFactory make_engine;  // Empty: MakeFileEngine.
  };

  // Makes the file and reserves its space, or opens the one that is there, and locks it until this
  // object ends. Reads the superblocks and nothing else. Errors: InvalidArgument (options; a size
  // beyond what a file can have), FailedPrecondition (another owner; a foreign file, with what is
  // foreign), ResourceExhausted (no space), PermissionDenied (another user's file), Unavailable (no
  // io_uring), those of the system.
  static absl::StatusOr<std::unique_ptr<SlabFile>> Open(Options options);
  // Calls Stop. Does not sync.
  ~SlabFile();

  uint32_t num_slots() const { return options_.num_slots; }
  uint64_t payload_bytes() const { return options_.payload_bytes; }

  using Record = absl::Span<const std::byte>;
  using Done = std::function<void(absl::Status)>;

  // Writes a block, whose bytes are the pieces one after another. The record, which is copied, says
  // what the block is; at most slab::kMaxRecordBytes. The pieces stay as they are until `done`
  // begins. Pieces whose addresses and lengths are multiples of the disk's alignment (512 or 4096)
  // go to the disk as they lie; others over a buffer. Costs the caller the checksum of the block.
  // REQUIRES: the slot exists and has no operation that is not done; 1 to payload_bytes() bytes.
  // Reports: FailedPrecondition (the mode; the slot is quarantined), Cancelled (Stop), those of the
  // system, after which the slot is quarantined and holds nothing.
  void Write(SlotIndex slot, Record record, absl::Span<const absl::Span<const std::byte>> pieces,
             Done done);
  // Reads the block of that length whose record begins with `record_prefix`. A record that is
  // unique in its first bytes, by a number of the write for example, needs no more than those; an
  // empty prefix fits every block. After an error the pieces' bytes are anything. REQUIRES: as
  // Write; but a slot may have up to 65,534 reads. Reports: NotFound (no block), DataLoss (not this
  // block in whole), FailedPrecondition (off; quarantined), Cancelled, those of the system.
  void Read(SlotIndex slot, Record record_prefix, absl::Span<const absl::Span<std::byte>> pieces,
            Done done);

  // Removes the slots' blocks, durably (invariant 3); many slots share one sync. Waits for what was
  // submitted before; what comes meanwhile waits for it. The caller that drops a block without this
  // finds it again after a restart, for as long as nothing overwrites its slot.
  // REQUIRES: the slots exist and have no operations. Errors: those of the system; then the blocks
  // may return after a restart, and the caller's way out is Reset.
  absl::Status Erase(absl::Span<const SlotIndex> slots);
  // Removes all blocks, durably, by a new generation: two pages, two syncs. Waits as Erase does.
  // Errors: those of the system; then the file is off, and its blocks may return after a restart.
  // It may be called again.
  absl::Status Reset();
  // The writes that were reported are durable. Errors: NotFound or DataLoss (the file was removed
  // or cut: it is off), those of fdatasync (it is read-only).
  absl::Status Sync();

  struct ScanResult {
    uint64_t blocks = 0;
    uint64_t empty = 0;
    uint64_t outdated = 0;    // Of an earlier generation, or of the file that this one replaced.
    uint64_t damaged = 0;     // Bytes that are no header, or another slot's.
    uint64_t unreadable = 0;  // Quarantined, some of them by this scan.
  };
  using OnBlock = absl::FunctionRef<void(SlotIndex slot, Record record, uint64_t payload_bytes)>;
  using OnProgress = std::function<void(uint64_t scanned, uint64_t slots)>;  // May be empty.

  // Calls `on_block` for each slot whose header is right, in the order of slots, on this thread. A
  // payload may still be torn: Read tells. Reads a page a slot, `depth` at once. Waits as Erase
  // does. Ends early with its errors: FailedPrecondition (the file is off, or is turned off by
  // reads that fail here), Cancelled (Stop).
  absl::StatusOr<ScanResult> Scan(OnBlock on_block, const OnProgress& on_progress);

  // Waits until everything that was submitted is reported.
  void WaitUntilIdle();
  // Lets what runs end, but for a scan, and reports what waits as CANCELLED. Afterwards everything
  // is refused as Cancelled. When it has returned no completion runs or will, also where another
  // thread called it first.
  void Stop();
  SlabStats stats() const;

 private:
  struct Operation;
  struct Buffer;
  struct Ended;
  class Exclusive;

  SlabFile(Options options, FileDescriptor fd, std::unique_ptr<FileEngine> engine,
           uint32_t alignment);

  // Of Open.
  absl::Status Load(uint64_t size_bytes);
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

  // Up to `depth` requests in flight; `ended` is called for each, in order, on this thread. When it
  // returns false, no further request begins and it is called no more.
  void RunInOrder(uint64_t count, absl::FunctionRef<FileRequest(uint64_t i)> make,
                  absl::FunctionRef<bool(uint64_t i, int error)> ended);
  int RunOne(FileRequest::Kind kind, uint64_t offset_bytes, std::byte* page);
  int RunSync();
  absl::Status SyncAndCheck();
  absl::Status CheckScan() const;
  void CountWriteError(int error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountReadError() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False where it was quarantined before.
  bool Quarantine(SlotIndex slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Degrade(SlabMode mode, std::string reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayEnter() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !exclusive_; }
  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return queue_.empty() && unreported_ == 0;
  }
  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return IsIdle() && held_.empty() && !exclusive_;
  }

  const Options options_;
  const uint32_t alignment_;  // Of pieces; 1: buffered.
  FileDescriptor fd_;
  // Written under Exclusive, and read where operations run, or under it.
  slab::Superblock superblock_;

  mutable absl::Mutex mutex_;
  absl::Mutex sync_mutex_;                        // One sync at a time. Before mutex_.
  std::vector<std::unique_ptr<Buffer>> buffers_;  // As many as `depth`.
  std::vector<Buffer*> free_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::unique_ptr<Operation>> queue_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::unique_ptr<Operation>> held_ ABSL_GUARDED_BY(mutex_);  // While exclusive.
  size_t unreported_ ABSL_GUARDED_BY(mutex_) = 0;  // Started, until `done` has returned.
  bool exclusive_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool sync_failed_ ABSL_GUARDED_BY(mutex_) = false;       // Since the last Reset.
  std::vector<uint16_t> users_ ABSL_GUARDED_BY(mutex_);    // By slot: reads, or kWriter.
  std::vector<bool> quarantined_ ABSL_GUARDED_BY(mutex_);  // By slot.
  std::vector<SlotIndex> untold_ ABSL_GUARDED_BY(mutex_);  // Failed writes without a tombstone.
  SlabStats stats_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<FileEngine> engine_;  // Ends first.
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_FILE_SLAB_FILE_H_

#include "pools/file/slab_file.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/counted.h"
#include "pools/file/slab_descriptor.h"
#include "pools/file/slab_operation.h"

namespace pagoda {
namespace {

constexpr uint32_t kMaxDepth = 1024;
constexpr uint16_t kWriter = std::numeric_limits<uint16_t>::max();

absl::Status Stopped() { return absl::CancelledError("the slab file has stopped"); }

absl::Status CheckOptions(const SlabFile::Options& options) {
  if (options.num_slots == 0 || options.payload_bytes == 0) {
    return absl::InvalidArgumentError("a slab file has slots, and they have bytes");
  }
  if (options.depth == 0 || options.depth > kMaxDepth) {
    return absl::InvalidArgumentError(
        absl::StrCat("a slab file's depth is 1 to ", kMaxDepth, " and not ", options.depth));
  }
  const uint64_t most = std::numeric_limits<int64_t>::max();
  if (options.payload_bytes > most / 2 || slab::StrideBytes(options.payload_bytes) >
                                              (most - 2 * slab::kPageBytes) / options.num_slots) {
    return absl::InvalidArgumentError(absl::StrCat("no file has ",
                                                   Counted(options.num_slots, "slot"), " of ",
                                                   options.payload_bytes, " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

SlabFile::SlabFile(Options options, FileDescriptor fd, std::unique_ptr<FileEngine> engine,
                   uint32_t alignment)
    : options_(std::move(options)),
      alignment_(alignment),
      fd_(std::move(fd)),
      engine_(std::move(engine)) {
  for (uint32_t i = 0; i < options_.depth; ++i) {
    buffers_.push_back(std::make_unique<Buffer>());
    free_.push_back(buffers_.back().get());
  }
  stats_.engine = std::string(engine_->name());
  stats_.direct = alignment_ > 1;
}

absl::StatusOr<std::unique_ptr<SlabFile>> SlabFile::Open(Options options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  absl::StatusOr<slab::OpenedFile> file = slab::OpenLocked(options.path, options.lock_patience);
  if (!file.ok()) return file.status();
  const int fd = file->fd.get();
  const uint32_t direct = options.caching == Caching::kDirect ? slab::EnableDirect(fd) : 0;
  const uint32_t engine_depth = options.depth + 1;  // Plus one for a sync.
  absl::StatusOr<std::unique_ptr<FileEngine>> engine =
      options.make_engine ? options.make_engine(fd, engine_depth)
                          : MakeFileEngine(options.engine, fd, engine_depth);
  if (!engine.ok()) return engine.status();
  std::unique_ptr<SlabFile> slab_file(new SlabFile(std::move(options), std::move(file->fd),
                                                   *std::move(engine), std::max(direct, 1u)));
  if (absl::Status status = slab_file->Load(file->size_bytes); !status.ok()) return status;
  return slab_file;
}

SlabFile::~SlabFile() { Stop(); }

// ---- Superblocks ----

absl::Status SlabFile::ReadSuperblocks(uint64_t size_bytes,
                                       slab::Page pages[slab::kNumSuperblocks]) {
  constexpr std::byte kForeign{0xff};
  absl::Status status;
  bool has_superblock = false;
  for (uint32_t i = 0; i < slab::kNumSuperblocks; ++i) {
    const uint64_t offset_bytes = i * slab::kPageBytes;
    if (size_bytes <= offset_bytes) {
      pages[i].fill(std::byte{0});
      continue;
    }
    slab::Page& page = buffers_[0]->header();
    const int error = RunOne(FileRequest::Kind::kRead, offset_bytes, page.data());
    if (error == 0) {
      pages[i] = page;
      slab::Superblock superblock;
      has_superblock |= slab::Parse(pages[i], superblock) == slab::Parsed::kOk;
      continue;
    }
    pages[i].fill(kForeign);
    // A file that ends within the page was never a slab file.
    if (error != kEndOfFile) {
      status = absl::ErrnoToStatus(error, absl::StrCat("read of superblock ", i));
    }
  }
  // The other superblock suffices, and repairs the unreadable one.
  return has_superblock ? absl::OkStatus() : status;
}

// Writes the second one when the first is durable, so that one of them is always whole.
absl::Status SlabFile::WriteSuperblocks() {
  for (uint32_t i = 0; i < slab::kNumSuperblocks; ++i) {
    slab::Page& page = buffers_[0]->header();
    slab::Format(superblock_, page);
    int error = RunOne(FileRequest::Kind::kWrite, i * slab::kPageBytes, page.data());
    if (error == 0) error = RunSync();
    if (error != 0) return absl::ErrnoToStatus(error, absl::StrCat("write of superblock ", i));
  }
  return absl::OkStatus();
}

absl::Status SlabFile::Make() {
  superblock_ = {.identity = options_.identity,
                 .num_slots = options_.num_slots,
                 .payload_bytes = options_.payload_bytes,
                 .generation = 1};
  // A new random number makes all slots of the previous file invalid.
  if (getrandom(superblock_.file_id.data(), superblock_.file_id.size(), 0) !=
      static_cast<ssize_t>(superblock_.file_id.size())) {
    return absl::ErrnoToStatus(errno, "getrandom");
  }
  const uint64_t size_bytes = slab::FileBytes(options_.num_slots, options_.payload_bytes);
  absl::Status status = slab::Reserve(fd_.get(), options_.path, size_bytes);
  return status.ok() ? WriteSuperblocks() : status;
}

absl::Status SlabFile::Load(std::optional<uint64_t> found_bytes) {
  const uint64_t wanted_bytes = slab::FileBytes(options_.num_slots, options_.payload_bytes);
  const uint64_t size_bytes = found_bytes.value_or(0);
  bool is_empty = size_bytes == 0;
  absl::Status status;
  if (is_empty) {
    status = Make();
  } else {
    slab::Page pages[slab::kNumSuperblocks];
    if (status = ReadSuperblocks(size_bytes, pages); !status.ok()) return status;
    slab::Opened opened = slab::ChooseSuperblock(pages, {.identity = options_.identity,
                                                         .num_slots = options_.num_slots,
                                                         .payload_bytes = options_.payload_bytes});
    // A superblock is written when the size is durable, so only another process changes it.
    if (opened.foreign_because.empty() && size_bytes != wanted_bytes) {
      opened.foreign_because =
          absl::StrCat("is damaged: it has ", size_bytes, " bytes instead of ", wanted_bytes);
    }
    if (opened.foreign_because.empty()) {
      superblock_ = opened.superblock;
      // The file can have holes, as a copy of it has.
      status = slab::Reserve(fd_.get(), options_.path, wanted_bytes);
      if (status.ok() && opened.needs_repair) status = WriteSuperblocks();
    } else if (opened.is_unfinished && size_bytes <= wanted_bytes) {
      is_empty = true;
      status = Make();
    } else if (options_.on_foreign == OnForeign::kReplace) {
      status = slab::Empty(fd_.get(), options_.path);
      if (status.ok()) status = Make();
    } else {
      return absl::FailedPreconditionError(absl::StrCat("slab file ", options_.path, " ",
                                                        opened.foreign_because,
                                                        "; replace it, or name another file"));
    }
  }
  if (!status.ok()) return status;
  const absl::MutexLock lock(&mutex_);
  // Allocates only after the space is reserved: the options can be absurd.
  users_.resize(options_.num_slots);
  quarantined_.resize(options_.num_slots);
  stats_.found_empty = is_empty && found_bytes.has_value();
  stats_.generation = superblock_.generation;
  return absl::OkStatus();
}

// ---- Blocks ----

void SlabFile::Write(SlotIndex slot, Record record,
                     absl::Span<const absl::Span<const std::byte>> pieces, Done done) {
  PAGODA_CHECK(record.size() <= slab::kMaxRecordBytes, "a record fits its header");
  auto operation = std::make_unique<Operation>();
  operation->is_write = true;
  operation->slot = slot;
  operation->record.assign(record.begin(), record.end());
  for (const absl::Span<const std::byte> piece : pieces) operation->Add(piece);
  operation->hash = slab::HashOf(pieces);
  operation->done = std::move(done);
  Enqueue(std::move(operation));
}

void SlabFile::Read(SlotIndex slot, Record record_prefix,
                    absl::Span<const absl::Span<std::byte>> pieces, Done done) {
  auto operation = std::make_unique<Operation>();
  operation->slot = slot;
  operation->record.assign(record_prefix.begin(), record_prefix.end());
  for (const absl::Span<std::byte> piece : pieces) operation->Add(piece);
  operation->done = std::move(done);
  Enqueue(std::move(operation));
}

void SlabFile::Enqueue(std::unique_ptr<Operation> operation) {
  PAGODA_CHECK(operation->slot.value() < options_.num_slots, "the slot exists");
  PAGODA_CHECK(operation->bytes > 0 && operation->bytes <= options_.payload_bytes,
               "a block fits its slot");
  bool stopped;
  {
    const absl::MutexLock lock(&mutex_);
    uint16_t& users = users_[operation->slot.value()];
    PAGODA_CHECK(operation->is_write ? users == 0 : users < kWriter - 1,
                 "nothing overlaps a write of the slot");
    users = operation->is_write ? kWriter : static_cast<uint16_t>(users + 1);
    stopped = stopped_;
    if (stopped) {
      ++unreported_;
    } else {
      (exclusive_ ? held_ : queue_).push_back(std::move(operation));
    }
  }
  if (stopped) {
    Report(std::move(operation), Stopped());
  } else {
    StartWaiting();
  }
}

absl::Status SlabFile::Admit(const Operation& operation) {
  if (stats_.mode == SlabMode::kOff || (operation.is_write && stats_.mode == SlabMode::kReadOnly)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the slab file is ",
                     stats_.mode == SlabMode::kOff ? "off: " : "read-only: ", stats_.mode_reason));
  }
  if (quarantined_[operation.slot.value()]) {
    return absl::FailedPreconditionError(
        absl::StrCat("slot ", operation.slot.value(), " is quarantined after an I/O error"));
  }
  return absl::OkStatus();
}

void SlabFile::StartWaiting() {
  while (true) {
    std::unique_ptr<Operation> operation;
    Buffer* buffer = nullptr;
    absl::Status status;
    {
      const absl::MutexLock lock(&mutex_);
      if (queue_.empty() || free_.empty()) return;
      operation = std::move(queue_.front());
      queue_.pop_front();
      ++unreported_;
      status = Admit(*operation);
      if (status.ok()) {
        buffer = free_.back();
        free_.pop_back();
      }
    }
    if (status.ok()) {
      Start(std::move(operation), buffer);
    } else {
      Report(std::move(operation), std::move(status));
    }
  }
}

bool SlabFile::IsAligned(const Operation& operation) const {
  if (operation.pieces.size() > kMaxPieces) return false;
  return std::all_of(operation.pieces.begin(), operation.pieces.end(), [this](const iovec& piece) {
    return (reinterpret_cast<uintptr_t>(piece.iov_base) | piece.iov_len) % alignment_ == 0;
  });
}

void SlabFile::Start(std::unique_ptr<Operation> operation, Buffer* buffer) {
  FileRequest request;
  request.kind = operation->is_write ? FileRequest::Kind::kWrite : FileRequest::Kind::kRead;
  request.offset_bytes = slab::SlotOffset(operation->slot.value(), options_.payload_bytes);
  request.pieces.push_back({buffer->header().data(), slab::kPageBytes});
  if (operation->is_write) {
    slab::Format({.file_id = superblock_.file_id,
                  .slot = operation->slot.value(),
                  .generation = superblock_.generation,
                  .payload_bytes = operation->bytes,
                  .payload_hash = operation->hash,
                  .record = operation->record},
                 buffer->header());
  }
  const uint64_t disk_bytes = slab::RoundUpToPage(operation->bytes);
  operation->bounced = !IsAligned(*operation);
  if (operation->bounced) {
    std::byte* bounce = buffer->bounce(slab::RoundUpToPage(options_.payload_bytes));
    if (operation->is_write) operation->CopyTo(bounce, disk_bytes);
    request.pieces.push_back({bounce, disk_bytes});
  } else {
    request.pieces.insert(request.pieces.end(), operation->pieces.begin(), operation->pieces.end());
    if (disk_bytes > operation->bytes) {
      if (operation->is_write) std::memset(buffer->padding(), 0, slab::kPageBytes);
      request.pieces.push_back({buffer->padding(), disk_bytes - operation->bytes});
    }
  }
  Operation* running = operation.release();
  request.done = [this, running, buffer](int error) {
    End(std::unique_ptr<Operation>(running), buffer, error);
  };
  engine_->Submit(std::move(request));
}

void SlabFile::End(std::unique_ptr<Operation> operation, Buffer* buffer, int error) {
  absl::Status status =
      operation->is_write ? EndWrite(*operation, error) : EndRead(*operation, *buffer, error);
  {
    const absl::MutexLock lock(&mutex_);
    free_.push_back(buffer);
  }
  StartWaiting();
  Report(std::move(operation), std::move(status));
}

void SlabFile::Report(std::unique_ptr<Operation> operation, absl::Status status) {
  {
    const absl::MutexLock lock(&mutex_);
    uint16_t& users = users_[operation->slot.value()];
    users = operation->is_write ? 0 : static_cast<uint16_t>(users - 1);
  }
  operation->done(std::move(status));
  operation.reset();
  const absl::MutexLock lock(&mutex_);
  --unreported_;
}

absl::Status SlabFile::EndWrite(const Operation& operation, int error) {
  const absl::MutexLock lock(&mutex_);
  if (error != 0) {
    if (Quarantine(operation.slot)) untold_.push_back(operation.slot);
    CountWriteError(error);
    return absl::ErrnoToStatus(error, absl::StrCat("write of slot ", operation.slot.value()));
  }
  ++stats_.writes;
  stats_.bytes_written += operation.bytes;
  stats_.bounced += operation.bounced ? 1 : 0;
  return absl::OkStatus();
}

absl::Status SlabFile::EndRead(Operation& operation, Buffer& buffer, int error) {
  if (error != 0) {
    const absl::MutexLock lock(&mutex_);
    CountReadError();
    return absl::ErrnoToStatus(error, absl::StrCat("read of slot ", operation.slot.value()));
  }
  // Checks the bytes in the caller's memory.
  if (operation.bounced) operation.CopyFrom(buffer.bounce(0));
  absl::Status status = CheckBlock(operation, buffer);
  const absl::MutexLock lock(&mutex_);
  if (status.ok()) {
    ++stats_.reads;
    stats_.bytes_read += operation.bytes;
    stats_.bounced += operation.bounced ? 1 : 0;
  } else {
    ++stats_.bad_blocks;
  }
  return status;
}

absl::Status SlabFile::CheckBlock(const Operation& operation, const Buffer& buffer) const {
  const auto slot = [&] { return absl::StrCat("slot ", operation.slot.value()); };
  slab::SlotHeader header;
  const slab::Parsed parsed = slab::Parse(buffer.header(), header);
  if (parsed == slab::Parsed::kEmpty) return absl::NotFoundError(slot() + " is empty");
  if (parsed != slab::Parsed::kOk) return absl::DataLossError(slot() + " has a damaged header");
  if (header.file_id != superblock_.file_id || header.generation != superblock_.generation) {
    return absl::NotFoundError(slot() + " holds a block from before a reset");
  }
  if (header.slot != operation.slot.value()) {
    return absl::DataLossError(absl::StrCat(slot(), " has the header of slot ", header.slot));
  }
  const size_t prefix_bytes = operation.record.size();
  if (header.payload_bytes != operation.bytes || header.record.size() < prefix_bytes ||
      !std::equal(operation.record.begin(), operation.record.end(), header.record.begin())) {
    return absl::DataLossError(slot() + " holds another block");
  }
  if (operation.HashOfPieces() != header.payload_hash) {
    return absl::DataLossError(slot() + " has bytes that do not fit its checksum");
  }
  return absl::OkStatus();
}

// ---- Errors ----

bool SlabFile::Quarantine(SlotIndex slot) {
  if (quarantined_[slot.value()]) return false;
  quarantined_[slot.value()] = true;
  ++stats_.quarantined_slots;
  return true;
}

void SlabFile::CountWriteError(int error) {
  ++stats_.write_errors;
  // The file system is full although space was reserved: other slots would fail too.
  if (error == ENOSPC || error == EDQUOT) {
    Degrade(SlabMode::kReadOnly, absl::StrCat("a write ended with ", strerror(error)));
  } else if (stats_.write_errors >= options_.max_write_errors) {
    Degrade(SlabMode::kReadOnly, absl::StrCat(Counted(stats_.write_errors, "write"),
                                              " failed, the last with ", strerror(error)));
  }
}

void SlabFile::CountReadError() {
  if (++stats_.read_errors >= options_.max_read_errors) {
    Degrade(SlabMode::kOff, absl::StrCat(Counted(stats_.read_errors, "read"), " failed"));
  }
}

void SlabFile::Degrade(SlabMode mode, std::string reason) {
  if (mode <= stats_.mode) return;
  stats_.mode = mode;
  stats_.mode_reason = std::move(reason);
}

void SlabFile::WaitUntilIdle() {
  const absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &SlabFile::HasNoOrders));
}

void SlabFile::Stop() {
  std::deque<std::unique_ptr<Operation>> cancelled;
  {
    const absl::MutexLock lock(&mutex_);
    stopped_ = true;
    cancelled.swap(queue_);
    for (std::unique_ptr<Operation>& operation : held_) cancelled.push_back(std::move(operation));
    held_.clear();
    unreported_ += cancelled.size();
  }
  for (std::unique_ptr<Operation>& operation : cancelled) Report(std::move(operation), Stopped());
  // A second call, which can run at the same time, waits too.
  WaitUntilIdle();
  const absl::MutexLock lock(&sync_mutex_);
  engine_->Stop();
}

SlabStats SlabFile::stats() const {
  const absl::MutexLock lock(&mutex_);
  SlabStats stats = stats_;
  stats.queued = queue_.size() + held_.size();
  stats.running = buffers_.size() - free_.size();
  return stats;
}

}  // namespace pagoda

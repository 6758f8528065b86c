// A persistent table of the processes that can write to the pools. The next daemon reads it.
#ifndef PAGODA_SERVER_MEMORY_WRITER_TABLE_H_
#define PAGODA_SERVER_MEMORY_WRITER_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/file_descriptor.h"
#include "manager/words/ids.h"
#include "server/memory/peer_process.h"

namespace pagoda::server {

// A process that mapped the pools for writing, with the session and tenant it did so for.
struct WriterRow {
  ProcessIdentity process;
  SessionRef session;
  std::string tenant;  // Its name, at most kMaxTenantBytes; empty: none.
};

// A table of writers in its own shared memory, next to the pools. Its rows survive the daemon,
// however the daemon ends, because a row is complete before it counts. A daemon that finds the
// pools of a dead one thereby knows which processes can still write to them.
// Thread-compatible. Holds a lock on its memory while it exists.
class WriterTable {
 public:
  enum class Leave { kRemoved, kForTheNextDaemon };

  // Opens the table `name` ("/x") with its rows, or creates it. Memory under that name that is not
  // a table of `capacity` rows is cleared, and is not a table until Begin: if a daemon ends in
  // between, the next one does not trust it either. REQUIRES: the caller holds the pools of the
  // same instance, so that no two daemons do this at once.
  // Errors: INVALID_ARGUMENT if a live process has it, or another user made it; those of shared
  // memory. After an error, memory that this call created is gone, and memory that existed is
  // unchanged.
  static absl::StatusOr<std::unique_ptr<WriterTable>> Open(const std::string& name,
                                                           size_t capacity);
  ~WriterTable();
  WriterTable(const WriterTable&) = delete;
  WriterTable& operator=(const WriterTable&) = delete;

  // Whether the table existed.
  bool found() const { return found_; }
  // Whether anything existed under the name, even if it was not a table.
  bool was_there() const { return was_there_; }
  // Marks the memory as a table. Changes nothing if the table was found.
  void Begin();
  // The indices of the rows that count, ascending.
  std::vector<size_t> Rows() const;
  // REQUIRES: the row counts.
  WriterRow Get(size_t row) const;
  // REQUIRES: found, or Begin was called. Error: RESOURCE_EXHAUSTED if the table is full.
  absl::StatusOr<size_t> Add(const WriterRow& row);
  void Remove(size_t row);
  size_t size() const { return capacity_ - free_.size(); }

  // Whether the memory outlives this object. The default is kRemoved.
  void SetLeave(Leave leave) { leave_ = leave; }

 private:
  struct Header;
  struct Slot;

  WriterTable(std::string name, FileDescriptor fd, void* memory, size_t capacity, bool found,
              bool was_there);

  const std::string name_;
  const FileDescriptor fd_;  // Holds the lock.
  Header* const header_;     // The mapping.
  Slot* const slots_;        // In the mapping.
  const size_t capacity_;
  const bool found_;
  const bool was_there_;
  std::vector<size_t> free_;
  Leave leave_ = Leave::kRemoved;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_MEMORY_WRITER_TABLE_H_

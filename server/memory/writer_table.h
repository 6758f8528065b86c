// Who may write to the pools, kept where the next daemon finds it.
#ifndef PAGODA_SERVER_MEMORY_WRITER_TABLE_H_
#define PAGODA_SERVER_MEMORY_WRITER_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "manager/ids.h"
#include "pools/file_descriptor.h"
#include "server/memory/peer_process.h"

namespace pagoda::server {

// A process that mapped the pools for writing, and for which session of which tenant.
struct WriterRow {
  ProcessIdentity process;
  SessionRef session;
  std::string tenant;  // Its name, at most kMaxTenantBytes; empty: none.
};

// A table of writers in shared memory of its own, beside the pools. What a daemon has written is
// there when it returns, however the daemon ends: a row is written before it counts. So a daemon
// that finds the pools of a dead one finds who could still write to them.
// Thread-compatible. Holds a lock on its memory as long as it lives.
class WriterTable {
 public:
  enum class Leave { kRemoved, kForTheNextDaemon };

  // Takes what is there under `name` ("/x"), with its rows, or makes it. What is there but is no
  // such table of `capacity` rows loses its contents, and is no table before Begin: a daemon that
  // ends in between leaves one that is still not believed. REQUIRES: the caller holds the pools of
  // the same instance, so that no two daemons do this at once.
  // Errors: INVALID_ARGUMENT where a living process has it, or another user made it; those of
  // shared memory. What this made is gone then, and what was there is as it was.
  static absl::StatusOr<std::unique_ptr<WriterTable>> Open(const std::string& name,
                                                           size_t capacity);
  ~WriterTable();
  WriterTable(const WriterTable&) = delete;
  WriterTable& operator=(const WriterTable&) = delete;

  // Whether the table was there.
  bool found() const { return found_; }
  // Whether anything was there under the name, a table or not.
  bool was_there() const { return was_there_; }
  // From here on this is a table. Nothing to do where it was found.
  void Begin();
  // The rows' indices that count, ascending.
  std::vector<size_t> Rows() const;
  // REQUIRES: the row counts.
  WriterRow Get(size_t row) const;
  // REQUIRES: found, or Begin was called. Error: RESOURCE_EXHAUSTED where the table is full.
  absl::StatusOr<size_t> Add(const WriterRow& row);
  void Remove(size_t row);
  size_t size() const { return capacity_ - free_.size(); }

  // Whether the memory outlives this object; kRemoved unless somebody said otherwise.
  void SetLeave(Leave leave) { leave_ = leave; }

 private:
  struct Header;
  struct Slot;

  WriterTable(std::string name, FileDescriptor fd, void* memory, size_t capacity, bool found,
              bool was_there);

  const std::string name_;
  const FileDescriptor fd_;  // Holds the lock.
  Header* const header_;     // The mapping.
  Slot* const slots_;        // In it.
  const size_t capacity_;
  const bool found_;
  const bool was_there_;
  std::vector<size_t> free_;
  Leave leave_ = Leave::kRemoved;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_MEMORY_WRITER_TABLE_H_

// Turns what the core does into events, one operation at a time.
#ifndef PAGODA_MANAGER_EVENT_RECORDER_H_
#define PAGODA_MANAGER_EVENT_RECORDER_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "events/event.h"
#include "pools/types.h"

namespace pagoda {

// kNo: nothing happens, as far as anybody can see. For replays and for measuring what events cost.
enum class RecordEvents : uint8_t { kNo, kYes };

// Numbers the events and joins those of one operation: removals of one window and reason are one
// event, and so is a run of stored blocks in which each is the child of the one before. Events stay
// in the order in which things happened. Thread-compatible.
class EventRecorder {
 public:
  explicit EventRecorder(RecordEvents record = RecordEvents::kYes) : record_(record) {}

  // What follows belongs to a new operation at `now`.
  void BeginOperation(absl::Time now);

  void PoolsCreated(WindowSize window, std::vector<uint32_t> blocks_per_tier);
  void BlocksCreated(WindowSize window, std::vector<BlockId> blocks);
  void BlocksReleased(WindowSize window, std::vector<BlockId> blocks);
  // `parent` is kNoBlock below the namespace's root, and `parent_hash` means nothing then.
  void Stored(WindowSize window, const NamespaceKey& name_space, BlockId parent,
              BlockHash parent_hash, StoredBlock block, absl::Span<const TokenId> tokens);
  void Removed(WindowSize window, RemovalReason reason, BlockId id, BlockHash hash);
  void WindowCleared(WindowSize window);

  // How much the next Stored or Removed event will hold in the end, where the caller knows: it then
  // takes its memory at once.
  void ExpectStored(size_t blocks, size_t tokens);
  void ExpectRemoved(size_t blocks) { expected_removed_blocks_ = blocks; }

  // The revision of the last event.
  Revision last() const { return last_; }
  // The events since the last Take.
  std::vector<Event> Take();

 private:
  template <class T>
  T& Append(WindowSize window, T what);
  RemovedEvent* OpenRemoval(WindowSize window, RemovalReason reason);
  StoredEvent* OpenStore(WindowSize window, BlockId parent);

  const RecordEvents record_;
  std::vector<Event> events_;
  size_t operation_begin_ = 0;  // Index of the operation's first event.
  absl::Time now_ = absl::UnixEpoch();
  size_t expected_stored_blocks_ = 0;
  size_t expected_stored_tokens_ = 0;
  size_t expected_removed_blocks_ = 0;
  Revision last_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_EVENT_RECORDER_H_

// Finds a cache's blocks by the digest of their content.
#ifndef PAGODA_SERVER_PEERS_DIGEST_INDEX_H_
#define PAGODA_SERVER_PEERS_DIGEST_INDEX_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/metric.h"
#include "base/thread.h"
#include "events/event_log.h"
#include "events/snapshot.h"
#include "manager/restart/content_digest.h"
#include "manager/shared_manager.h"

namespace pagoda::server {

// The blocks of a cache by the names that a store would give them (pools/store/stored_value.h).
// Reads the event log from its first revision on, with its own cursor and thread, and computes the
// digest of each stored block from that of its parent. The cache does not wait for the index. If
// the log drops events before the index has read them, the index begins again with a snapshot.
// Thread-safe.
//
// The index has every cached block, tails included, except:
// * in a sliding window, blocks whose parent had left the cache when they were stored
// * for a while after a snapshot, all blocks that were cached then, if the log is so short that it
//   passes the index during each of kSnapshots snapshots
//
// Invariants
// 1. An entry that is there after the events up to a revision had its content at that revision.
//    Entry::stored says since when: the same entry later means the same content in between.
// 2. Memory: about 50 bytes for each block of all tiers, and 32 more with a secret. While it reads
//    a snapshot, also the tokens of blocks that came before their parents.
// 3. mutex_ is held for at most one piece of kPieceTokens tokens or one piece of a snapshot at a
//    time.
class DigestIndex {
 public:
  using Name = std::array<std::byte, 32>;  // The result of NameDigest.

  struct Options {
    SharedManager* manager = nullptr;  // Outlives the index, with its log.
    std::string secret = {};           // See RedisOptions::secret.
  };
  struct Entry {
    BlockId block = kNoBlock;
    Revision stored;  // Since when the index knows that the block has this content.
    ContentDigest digest;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  struct Stats {
    uint64_t blocks = 0;  // Over all windows.
    uint64_t left_out = 0;
    uint64_t resets = 0;
    uint64_t read_revision = 0;  // The revision of the last event that was read.
  };

  explicit DigestIndex(Options options);
  // REQUIRES: the log is not closed.
  ~DigestIndex();

  // OK, or why its thread is missing (Thread::Start). It may not be used then.
  const absl::Status& started() const { return started_; }

  // Each of these first reads what is new in the log, at most kCatchUpPieces pieces. So a block is
  // found as soon as the call that stored it has returned.

  // The block of the window with this name now. Nothing: there is none.
  std::optional<Entry> Find(uint32_t window_index, const Name& name) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the block had the entry's content all the time from entry.stored to `revision`, which
  // the log has. False also if the index is too far behind to know.
  bool HadUntil(uint32_t window_index, const Entry& entry, Revision revision)
      ABSL_LOCKS_EXCLUDED(mutex_);

  Stats stats() const ABSL_LOCKS_EXCLUDED(mutex_);

  static constexpr size_t kPieceTokens = 1 << 16;
  static constexpr int kCatchUpPieces = 8;
  static constexpr int kSnapshots = 3;

 private:
  class Window;

  void Run();
  // Reads the next piece. False: there is nothing to read.
  bool ReadOn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool ReadLog() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReadSnapshot() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the log has all events from next_ to the piece's revision; applies those of passed ids.
  bool ApplyPassed(Revision end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginSnapshot() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndSnapshot() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the index is up to date with `revision`.
  bool CatchUp(Revision revision) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Apply(const Event& event, Revision at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Store(Window& window, const StoredEvent& stored, Revision at)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Insert(Window& window, BlockId id, const ContentDigest& digest, Revision at)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Window& WindowOf(WindowSize size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  EventLog& log_;
  std::atomic<bool> stopping_ = false;

  // Before the core's lock and the log's.
  mutable absl::Mutex mutex_;
  ContentDigester digester_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Window>> windows_ ABSL_GUARDED_BY(mutex_);  // By window index.
  Revision next_ ABSL_GUARDED_BY(mutex_){1};                              // Is read next.
  // The snapshot that is being read.
  std::optional<SnapshotPosition> snapshot_ ABSL_GUARDED_BY(mutex_);
  int snapshots_ ABSL_GUARDED_BY(mutex_) = 0;  // Begun since the last whole one.
  Stats stats_ ABSL_GUARDED_BY(mutex_);

  absl::Status started_;
  Thread thread_;  // Last: it uses the other members.
};

// Label: cache.
inline constexpr Metric<DigestIndex::Stats> kPeerIndexMetrics[] = {
    {&DigestIndex::Stats::blocks, "pagoda_peer_index_blocks", "",
     "Blocks of the cache that other daemons can read."},
    {&DigestIndex::Stats::left_out, "pagoda_peer_index_left_out_blocks_total", "",
     "Blocks that other daemons cannot read, because the block before them was unknown."},
    {&DigestIndex::Stats::resets, "pagoda_peer_index_resets_total", "",
     "Times that the index began again, because the event log had passed it."},
};
static_assert(EachFieldHasARow<&DigestIndex::Stats::read_revision>(kPeerIndexMetrics),
              "a field has no row");

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_PEERS_DIGEST_INDEX_H_

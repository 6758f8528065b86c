// One run: a core, its simulated clients, the memory that they share, and what is known of all that
// without asking the core.
#ifndef PAGODA_TESTS_SIM_WORLD_H_
#define PAGODA_TESTS_SIM_WORLD_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/error.h"
#include "events/shadow_allocations.h"
#include "events/shadow_tree.h"
#include "manager/block_manager.h"
#include "tests/sim/accountant.h"
#include "tests/sim/client.h"
#include "tests/sim/config.h"
#include "tests/sim/content.h"
#include "tests/sim/coverage.h"
#include "tests/sim/digest.h"
#include "tests/sim/disk.h"
#include "tests/sim/disk_orders.h"
#include "tests/sim/fail.h"
#include "tests/sim/journal.h"
#include "tests/sim/late_joiner.h"
#include "tests/sim/ledger.h"
#include "tests/sim/memory.h"
#include "tests/sim/random.h"
#include "tests/sim/shadow.h"
#include "tests/sim/trace.h"

namespace pagoda::sim {

// A set of RemovalReasons.
using Reasons = uint32_t;
constexpr Reasons Bit(RemovalReason reason) { return 1u << static_cast<uint32_t>(reason); }
// What may leave because room was needed.
inline constexpr Reasons kForSpace = Bit(RemovalReason::kEvicted) | Bit(RemovalReason::kDisplaced);

// What an operation may do to the tree, beside what time brings.
struct Scope {
  Reasons reasons = 0;
  // The sequence that the operation cuts: what leaves for that is not cut off from it.
  const SimSequence* cuts = nullptr;
  // The sequence that may publish in it.
  const SimSequence* publisher = nullptr;
  // Priorities may change by a wish, and of which blocks: those on the path of these values.
  bool sets_priorities = false;
  // Cached blocks that the operation keeps while it makes room, though nobody holds them before and
  // after it; by window.
  std::array<absl::InlinedVector<uint32_t, 8>, kMaxWindows> kept;
  // Blocks that their only holder lets go before room is made.
  std::vector<HeldBlock> let_go;
  // The operation moves blocks that it was told to move: whatever their priority.
  bool moves_named = false;
  // Blocks of an earlier run become cached again, in whichever tier they lie.
  bool restores = false;
  // A copy ends: what did not arrive falls to a copy that it has below.
  bool ends_copy = false;
  // Backups may be ordered: the disk gives up copies for them.
  bool orders_backups = false;
  // A backup has ended well: this block has a copy on disk.
  std::optional<HeldBlock> backed_up;
  // A fetch has ended: these blocks come up, into these slots.
  struct Fetched {
    HeldBlock block;
    SlotIndex slot;
  };
  std::vector<Fetched> fetched;
  // Of fetches that the operation orders.
  absl::Time fetch_deadline = absl::InfiniteFuture();
  // Blocks of an earlier run become cached again on disk, too: what was found there.
  const std::vector<RecoveredWindow>* found_on_disk = nullptr;
};

// Blocks of one tier and tenant that went for room in one call or fell from there, and those of the
// tenant's that could have gone instead.
struct Victims {
  uint32_t window = 0;
  Tier tier = Tier::kPrimary;
  TenantId tenant;
  struct Gone {
    Priority priority;
    std::optional<Tier> to;     // Nothing: it left the cache.
    bool named = false;         // It was told to move, whatever its priority.
    bool has_children = false;  // They would be unreachable without it.
    bool freely = false;        // It had a copy there.
  };
  std::vector<Gone> gone;
  uint32_t came = 0;  // Blocks that fell to this tier.
  struct Candidate {
    uint32_t id;
    Priority priority;
  };
  std::vector<Candidate> candidates;  // Before the call.
  std::vector<uint32_t> duplicates;   // Likewise; of the default tenant's entry, all tenants'.
};

class World {
 public:
  World(uint64_t seed, Trace* trace);

  // Runs operation `index`, with all checks.
  void Step(uint32_t index);
  // Ends all sessions, pins and copies: nobody holds anything then.
  void Finish();
  // The daemon dies, with all copies that are under way, and starts again with what the journal and
  // the memory have.
  void Restart();
  // What only some runs do, because it takes more time: the events also go through a ShadowTree,
  // and are kept.
  void KeepEvents() { keep_events_ = true; }
  const std::vector<Event>& events() const { return events_; }
  const std::vector<CopyOrder>& orders() const { return orders_; }

  // --- For operations (operations.h) ---

  // Before each call of the core that takes the time: what time brings happens to the model, too.
  void ApplyTime();
  // After each call: takes its events and copies, and follows them.
  void Absorb(const Scope& scope);
  // After each call, once the model is what the answer says.
  void Check();
  // A call that was refused: with one of these reasons, and without a trace.
  void Refused(const absl::Status& status, std::initializer_list<Reason> reasons);

  // The prefix's name space as the session may call it.
  NamespaceKey Ask(const SimSession& session, uint32_t name_space);
  // Whom a sequence of the session in this name space is charged to.
  TenantId TenantFor(const SimSession& session, uint32_t name_space) const {
    const TenantId owner = config.OwnerOf(name_space);
    return owner == kDefaultTenant ? session.tenant : owner;
  }
  // The most primary slots that the tenant can ever have.
  uint32_t most_blocks(uint32_t window, TenantId tenant) const {
    return std::min(config.windows[window].primary(), config.quota(tenant, Tier::kPrimary));
  }
  // Whether the tenant may hold a block that is cached in the primary tier, while an operation
  // runs. What it holds of the default tenant's counts against its quota.
  bool MayHold(uint32_t window, uint32_t id, TenantId tenant);
  // Whether the block may go for room (rule 13): it is cached, nobody holds it, and under full
  // attention no child of it lies in its tier or a nearer one.
  bool IsCandidate(uint32_t window, uint32_t id);
  // Primary slots that the tenant can get.
  uint32_t available(uint32_t window, TenantId tenant) const {
    return std::min(ledgers[window].available(), accountants[window].Left(tenant));
  }

  // A cached block is to be kept like this from now on.
  void Wish(uint32_t window, uint32_t id, const BlockRetention& retention);
  // Whether wishes of the tenant's may lower what blocks of the name space are kept at. What
  // tenants share they only raise.
  bool MayLower(TenantId tenant, uint32_t name_space) const {
    return tenant == kDefaultTenant || config.OwnerOf(name_space) == tenant;
  }
  // As Wish, for the tenant. Whether its wish counts.
  bool WishOf(TenantId tenant, uint32_t window, uint32_t id, const BlockRetention& retention);
  // As Wish, where that is a higher priority.
  void Raise(uint32_t window, uint32_t id, const BlockRetention& retention);
  // Whether the block is in the tree, or a reset has cut it off and not come to it yet: of that no
  // event tells, so it is the one thing that the core is asked.
  bool InTree(uint32_t window, BlockId id) const {
    return shadows[window].node(id.value()).cached() ||
           core->IsCutOff(config.windows[window].size, id);
  }
  // Whether what the session lets go drains first.
  bool Draining(const SimSession& session) const {
    return batch_session == &session && batch_defers;
  }
  // The session lets a block go that is charged to `tenant`, at once or when it has drained.
  void Release(SimSession& session, TenantId tenant, uint32_t window, BlockId block);
  void ReleaseEntry(SimSession& session, SimSequence& sequence, uint32_t window, uint32_t index);

  bool Note() const { return trace_->on(); }
  void Note(std::string line) { trace_->Add(std::move(line)); }

  // Drains are over whose step the session has completed; all of them where it has ended.
  void EndDeferred(SessionId session, uint64_t completed_step);
  // Whether what the ticket stands for has arrived.
  bool Ready(Ticket ticket) const { return memory.completed() >= ticket; }
  // Carries out one copy and tells the core.
  void EndOneCopy(Ticket ticket);

  // --- The disk (disk_steps.cc) ---

  // Carries out one command of the disk's and tells the core. Whether there was one that could end.
  bool EndOneFile();
  // The block's copy on disk; kNoSlot: none.
  SlotIndex CopyOnDisk(uint32_t window, uint32_t id) {
    return config.has_disk ? ledgers[window][id].copies[config.disk_index()] : kNoSlot;
  }
  bool IsOnlyOnDisk(uint32_t window, uint32_t id) const {
    const Node& node = shadows[window].node(id);
    return node.cached() && config.IsOnDisk(node.tier);
  }
  // Whether the disk may give up the block's copy there: no child has one or gets one, and nobody
  // reads it.
  bool IsDiskCandidate(uint32_t window, uint32_t id);
  // The values of the tokens up to the block's last one.
  std::vector<Value> PathOf(uint32_t window, uint32_t id) const;
  // What a slot holds, in memory or on disk.
  const Value* values(uint32_t window, SlotRef slot) const {
    return config.IsOnDisk(slot.tier) ? files.written(window, slot.slot).bytes.data()
                                      : memory.slot(window, slot);
  }

  uint32_t num_windows() const { return static_cast<uint32_t>(config.windows.size()); }
  uint32_t tokens_per_block() const { return config.tokens_per_block; }
  uint32_t BlocksFor(uint64_t tokens) const {
    return static_cast<uint32_t>((tokens + config.tokens_per_block - 1) / config.tokens_per_block);
  }
  // Tokens that the window reaches back, the current one included; more than there are under full
  // attention.
  uint64_t window_size(uint32_t window) const { return config.windows[window].size.value(); }
  bool full(uint32_t window) const { return config.windows[window].full(); }

  const SimConfig config;
  std::unique_ptr<BlockManager> core;
  Random random;  // Of this operation.
  absl::Time now;
  std::vector<Shadow> shadows;
  std::vector<Ledger> ledgers;
  std::vector<Accountant> accountants;
  Journal journal;
  Memory memory;
  Disk files;
  DiskOrders on_order;
  std::array<SimSession, kMaxSessions> sessions;
  std::vector<SimPin> pins;
  std::vector<SimDeferredRelease> deferred;
  std::vector<SimQuarantine> quarantines;
  // Sessions that are over and quarantines that were released, and still have blocks; the oldest
  // first.
  struct Ending {
    SessionId id;
    SimSession* session = nullptr;  // nullptr: a quarantine.
  };
  std::deque<Ending> endings;
  // Stored in the call that runs, until it is known by which sequence.
  std::vector<HeldBlock> stored;
  // Cached blocks that a sequence took over in the call that runs, and how they were kept.
  struct TakenOver {
    HeldBlock block;
    Node node;
    BlockRetention retention;
  };
  std::vector<TakenOver> taken_over;
  Prompts prompts;
  SimSession* batch_session = nullptr;  // Whose batch it is.
  bool batch_defers = false;
  bool exhausted = false;  // A call was refused for want of room, and nobody has ended since.
  Coverage coverage;
  Digest digest;
  uint64_t drawn_tokens = 0;  // Of sessions.

 private:
  uint32_t ComputedWithout(const SimSequence& sequence, uint32_t window, SlotRef lost) const;
  void BeginRun();
  void Adopt(const std::vector<RecoveredWindow>& windows, const std::vector<SlotChange>& changes);
  void QuarantineFree();
  void RestoreDisk(const std::vector<RecoveredWindow>& windows);
  void NoteFiles(const FileCommands& commands, const Scope& scope);
  bool HasBlock(uint32_t window, SlotRef slot);
  void CheckFiles(const FileCommands& commands);
  void CheckBackup(const FileOrder& order);
  void EndBackup(const Disk::Ended& ended);
  void EndErase(const Disk::Ended& ended);
  void EndFetch(const Disk::Ended& ended);
  bool ComesUp(uint32_t window, const DiskOrders::Fetch& fetch, const Scope& scope);
  void FollowDroppedBackups(uint32_t window);
  bool ExpireFetches();
  void DiskStep(uint32_t index);
  void FinishDisk();
  void CheckDisk(uint32_t window);
  void CountHolders();
  void CheckVictims();
  std::optional<Victims::Candidate> LowestThatStayed(const Victims& victims);
  void CheckDuplicatesWentFirst(const Victims& from, const Victims::Gone& gone);
  void CheckPassed(const Victims& from, const Victims::Gone& gone);
  void CheckSequences();
  void CheckTables(const SimSequence& sequence, const Sequence& told);
  void CheckNodes(uint32_t window);
  void CheckDeferred();
  void CheckRaw();
  void CheckCapacity();
  void CheckAllocations(uint32_t window);
  void CheckRetention(uint32_t window);

  Trace* const trace_;
  bool keep_events_ = false;
  uint64_t restarts_ = 0;
  bool time_applied_ = false;
  bool pins_expired_ = false;
  std::vector<Event> events_;
  std::vector<CopyOrder> orders_;
  ShadowTree shadow_tree_;
  ShadowAllocations allocations_;
  LateJoiner late_joiner_;
  Revision revision_;
  std::vector<Victims> victims_;  // Of the last call.
  // Of the last call, for Refused.
  size_t last_events_ = 0;
  size_t last_expiries_ = 0;
  size_t last_orders_ = 0;
  size_t last_commands_ = 0;
  ManagerStats stats_;
};

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_WORLD_H_

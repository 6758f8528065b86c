// One run: a core, its simulated clients, their shared memory, and the state that is known without
// asking the core.
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
#include "manager/block_manager.h"
#include "tests/events/shadow_allocations.h"
#include "tests/events/shadow_tree.h"
#include "tests/sim/record/accountant.h"
#include "tests/sim/record/client.h"
#include "tests/sim/record/disk.h"
#include "tests/sim/record/disk_orders.h"
#include "tests/sim/record/hash_reader.h"
#include "tests/sim/record/journal.h"
#include "tests/sim/record/late_joiner.h"
#include "tests/sim/record/ledger.h"
#include "tests/sim/record/memory.h"
#include "tests/sim/record/publish_model.h"
#include "tests/sim/record/shadow.h"
#include "tests/sim/record/witness.h"
#include "tests/sim/words/config.h"
#include "tests/sim/words/content.h"
#include "tests/sim/words/coverage.h"
#include "tests/sim/words/digest.h"
#include "tests/sim/words/fail.h"
#include "tests/sim/words/random.h"
#include "tests/sim/words/trace.h"

namespace pagoda::sim {

// A set of RemovalReasons.
using Reasons = uint32_t;
constexpr Reasons Bit(RemovalReason reason) { return 1u << static_cast<uint32_t>(reason); }
// The reasons for which blocks leave to free slots.
inline constexpr Reasons kForSpace = Bit(RemovalReason::kEvicted) | Bit(RemovalReason::kDisplaced);

// The changes of the tree that an operation may cause, besides those caused by time.
struct Scope {
  Reasons reasons = 0;
  // The sequence that the operation truncates. It can still publish after its own blocks have left
  // because of that.
  const SimSequence* cuts = nullptr;
  // The sequence that can publish in it.
  const SimSequence* publisher = nullptr;
  // Wishes can change the priorities of blocks on the path of these values.
  bool sets_priorities = false;
  // By window: cached blocks that the operation keeps while it frees slots, although nothing holds
  // them before and after it.
  std::array<absl::InlinedVector<uint32_t, 8>, kMaxWindows> kept;
  // Blocks whose only holder releases them before slots are freed.
  std::vector<HeldBlock> let_go;
  // The operation moves the blocks that it names, whatever their priority.
  bool moves_named = false;
  // Blocks of an earlier run become cached again, in any tier.
  bool restores = false;
  // A copy ends: a block whose bytes did not arrive falls to a copy below.
  bool ends_copy = false;
  // Backups can be ordered: the disk gives up copies for them.
  bool orders_backups = false;
  // A backup has succeeded: this block has a copy on disk.
  std::optional<HeldBlock> backed_up;
  // A fetch has ended: these blocks are in memory now, in these slots.
  struct Fetched {
    HeldBlock block;
    SlotIndex slot;
  };
  std::vector<Fetched> fetched;
  // The deadline of the fetches that the operation orders.
  absl::Time fetch_deadline = absl::InfiniteFuture();
  // Blocks found on disk become cached again there too.
  const std::vector<RecoveredWindow>* found_on_disk = nullptr;
};

// Blocks of one tier and tenant that left or fell to free slots in one call, and the tenant's
// candidates that could have gone instead.
struct Victims {
  uint32_t window = 0;
  Tier tier = kPrimaryTier;
  TenantId tenant;
  struct Gone {
    Priority priority;
    std::optional<Tier> to;  // None: it left the cache.
    bool named = false;      // An operation named it, so its priority did not matter.
    // Under full attention: where its nearest child was. Without it the child would be unreachable.
    std::optional<Tier> child;
    uint32_t id = kNone;
  };
  std::vector<Gone> gone;
  uint32_t came = 0;  // The number of blocks that fell to this tier.
  struct Candidate {
    uint32_t id;
    Priority priority;
  };
  std::vector<Candidate> candidates;  // Before the call.
  std::vector<uint32_t>
      // The counters before the call. The default tenant's entry has the duplicates of all tenants.
      duplicates;
};

class World {
 public:
  World(uint64_t seed, Trace* trace);

  // Runs operation `index`, with all checks.
  void Step(uint32_t index);
  // Ends all sessions, pins and copies. Nothing holds a block then.
  void Finish();
  // The daemon dies with all running copies. It starts again with the journal and the memory.
  void Restart();
  // Only in some runs, because it takes more time: the events also go through a ShadowTree, and are
  // kept.
  void KeepEvents() { keep_events_ = true; }
  const std::vector<Event>& events() const { return events_; }
  const std::vector<Order>& orders() const { return orders_; }

  // --- For operations (operations.h) ---

  // Called before each call of the core that takes the time. Time changes the model too.
  void ApplyTime();
  // Called after each call: takes its events and copies, and follows them.
  void Absorb(const Scope& scope);
  // Called after each call, when the model agrees with the answer.
  void Check();
  // Counts the holders of all blocks anew. Check does that too.
  void CountHolders();
  // Checks a refused call: it has one of these reasons and left no trace.
  void Refused(const absl::Status& status, std::initializer_list<Reason> reasons);

  // The namespace that the session's request names to reach this name space of the world.
  NamespaceKey Ask(const SimSession& session, uint32_t name_space);
  // The tenant that a sequence of the session in this name space is charged to.
  TenantId TenantFor(const SimSession& session, uint32_t name_space) const {
    const TenantId owner = config.OwnerOf(name_space);
    return owner == kDefaultTenant ? session.tenant : owner;
  }
  // The most primary slots that the tenant can ever have.
  uint32_t most_blocks(uint32_t window, TenantId tenant) const {
    return std::min(config.windows[window].primary(), config.quota(tenant, kPrimaryTier));
  }
  // Whether the tenant may hold a block that is cached in the primary tier, while an operation
  // runs. A block of the default tenant that it holds counts against its quota.
  bool MayHold(uint32_t window, uint32_t id, TenantId tenant);
  // Whether the block can be evicted (rule 13): it is cached, nothing holds it, and under full
  // attention no child of it lies in its tier or a nearer one.
  bool IsCandidate(uint32_t window, uint32_t id);
  // Primary slots that the tenant can get.
  uint32_t available(uint32_t window, TenantId tenant) const {
    return std::min(ledgers[window].available(), accountants[window].Left(tenant));
  }

  // Sets the retention of a cached block.
  void Wish(uint32_t window, uint32_t id, const BlockRetention& retention);
  // Whether wishes of the tenant can lower the retention of blocks in the name space. Wishes for
  // shared blocks only raise it.
  bool MayLower(TenantId tenant, uint32_t name_space) const {
    return tenant == kDefaultTenant || config.OwnerOf(name_space) == tenant;
  }
  // Does what Wish does, for the tenant. Returns whether its wish counts.
  bool WishOf(TenantId tenant, uint32_t window, uint32_t id, const BlockRetention& retention);
  // Does what Wish does, if that raises the priority.
  void Raise(uint32_t window, uint32_t id, const BlockRetention& retention);
  // Whether the block is in the tree, or a reset has cut it off and not reached it yet. No event
  // reports the latter, so this is the only question to the core.
  bool InTree(uint32_t window, BlockId id) const {
    return shadows[window].node(id.value()).cached() ||
           core->IsCutOff(config.windows[window].size, id);
  }
  // Whether the session's releases are deferred.
  bool Draining(const SimSession& session) const {
    return batch_session == &session && batch_defers;
  }
  // The session releases a block that is charged to `tenant`, at once or when its step is
  // completed.
  void Release(SimSession& session, TenantId tenant, uint32_t window, BlockId block);
  void ReleaseEntry(SimSession& session, SimSequence& sequence, uint32_t window, uint32_t index);

  bool Note() const { return trace_->on(); }
  void Note(std::string line) { trace_->Add(std::move(line)); }

  // Ends the deferred releases of steps that the session has completed, or all of them if it has
  // ended.
  void EndDeferred(SessionId session, uint64_t completed_step);
  // Whether all copies up to the ticket have ended.
  bool Ready(Ticket ticket) const { return memory.completed() >= ticket; }
  // Carries out one copy and reports it to the core.
  void EndOneCopy(Ticket ticket);

  // --- The disk (disk_steps.cc) ---

  // The block's copy on disk; kNoSlot: none.
  SlotIndex CopyOnDisk(uint32_t window, uint32_t id) {
    return config.has_disk ? ledgers[window][id].copies[config.disk_index()] : kNoSlot;
  }
  bool IsOnlyOnDisk(uint32_t window, uint32_t id) const {
    const Node& node = shadows[window].node(id);
    return node.cached() && config.IsOnDisk(node.tier);
  }
  // Whether the disk can give up the block's copy: no child has or gets one, and nothing reads it.
  bool IsDiskCandidate(uint32_t window, uint32_t id);
  // The values of a slot, in memory or on disk.
  const Value* values(uint32_t window, SlotRef slot) const {
    return config.IsOnDisk(slot.tier) ? files.written(window, slot.slot).bytes.data()
                                      : memory.slot(window, slot);
  }

  uint32_t num_windows() const { return static_cast<uint32_t>(config.windows.size()); }
  uint32_t tokens_per_block() const { return config.tokens_per_block; }
  uint32_t BlocksFor(uint64_t tokens) const {
    return static_cast<uint32_t>((tokens + config.tokens_per_block - 1) / config.tokens_per_block);
  }
  // The tokens that the window reaches back, with the current one. Under full attention, more than
  // exist.
  uint64_t window_size(uint32_t window) const { return config.windows[window].size.value(); }
  bool full(uint32_t window) const { return config.windows[window].full(); }

  const SimConfig config;
  Witness witness;  // Wraps the policies of a core that learns; outlives it.
  std::unique_ptr<BlockManager> core;
  Random random;  // For this operation.
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
  // Sessions that are over and quarantines that were released, with blocks left; the oldest first.
  struct Ending {
    SessionId id;
    SimSession* session = nullptr;  // nullptr: a quarantine.
  };
  std::deque<Ending> endings;
  // Stored in the running call. Moved when it is known which sequence stored it.
  std::vector<HeldBlock> stored;
  // Cached blocks that a sequence took over in the running call, and their retention.
  struct TakenOver {
    HeldBlock block;
    Node node;
    BlockRetention retention;
  };
  std::vector<TakenOver> taken_over;
  std::vector<HeldBlock> copied;  // Cached blocks copied in part in the running call.
  Prompts prompts;
  PublishModel publishable;
  SimSession* batch_session = nullptr;  // The owner of the batch.
  bool batch_defers = false;
  bool exhausted =
      false;  // A call was refused because blocks were scarce, and no session has ended since.
  Coverage coverage;
  Digest digest;
  uint64_t drawn_tokens = 0;  // How many session tokens were drawn.

 private:
  uint32_t ComputedWithout(const SimSequence& sequence, uint32_t window, SlotRef lost) const;
  void BeginRun();
  void TakePublishable(Random& own);
  LateJoiner MakeLateJoiner() const;
  HashReader MakeHashReader() const;
  void Adopt(const std::vector<RecoveredWindow>& windows, const std::vector<SlotChange>& changes);
  void QuarantineFree();
  void CheckVictims();
  std::optional<Victims::Candidate> LowestThatStayed(const Victims& victims);
  void CheckDuplicatesWentFirst(const Victims& from, const Victims::Gone& gone);
  void CheckPassed(const Victims& from, const Victims::Gone& gone);
  void CheckAllocations(uint32_t window);
  void CheckRetention(uint32_t window);

  Trace* const trace_;
  bool keep_events_ = false;
  uint64_t restarts_ = 0;
  bool time_applied_ = false;
  bool pins_expired_ = false;
  std::vector<Event> events_;
  std::vector<Order> orders_;
  ShadowTree shadow_tree_;
  ShadowAllocations allocations_;
  // Both draw the size of their chunks from the seed.
  LateJoiner late_joiner_ = MakeLateJoiner();
  HashReader hash_reader_ = MakeHashReader();
  Revision revision_;
  std::vector<Victims> victims_;  // The victims of the last call.
  // The number of the last call's events, for Refused.
  size_t last_events_ = 0;
  size_t last_expiries_ = 0;
  size_t last_orders_ = 0;
  size_t last_commands_ = 0;
  ManagerStats stats_;
};

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_WORLD_H_

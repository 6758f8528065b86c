// Follows one call of the core: checks its events and copies, in order, against the shadows and the
// ledgers.
#ifndef PAGODA_TESTS_SIM_FOLLOW_H_
#define PAGODA_TESTS_SIM_FOLLOW_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "events/event_batch.h"
#include "pools/order.h"
#include "tests/sim/world.h"

namespace pagoda::sim {

inline bool IsAmong(const std::vector<HeldBlock>& places, uint32_t window, uint32_t id) {
  return std::find(places.begin(), places.end(), HeldBlock{window, BlockId{id}}) != places.end();
}

class Follow {
 public:
  Follow(World& world, const Scope& scope) : world_(world), scope_(scope) {}

  // Stops the run if an event or a copy is not allowed, or does not fit the known state.
  void Run(const EventBatch& events, const std::vector<Order>& orders);

  size_t expiries() const { return expiries_; }
  // Changes to the default priority count as expiries unless a block was published.
  // Blocks that left to free slots, and the candidates that stayed during the whole call.
  const std::vector<Victims>& victims() const { return victims_; }

 private:
  struct Move {
    uint32_t window;
    uint32_t id;
    Tier to;
    bool copied = false;
  };
  struct Arrived {
    uint32_t window;
    uint32_t id;
    SlotRef slot;
  };
  uint32_t WindowIndex(WindowSize size) const;
  void NoteCandidates(uint32_t window);
  bool LetGo(uint32_t window, uint32_t id) const;
  Victims& VictimsOf(uint32_t window, Tier tier, uint32_t id);
  void NoteVictim(uint32_t window, Tier tier, uint32_t id, const Victims::Gone& gone);
  void NoteGone(uint32_t window, Tier tier, uint32_t id, const Victims::Gone& gone);
  void NoteLower(uint32_t window, const UpdatedEvent& updated);
  void ForgetDuplicate(uint32_t window, Tier tier, uint32_t id);
  void NoteFetched(uint32_t window, const UpdatedEvent& updated);
  void NoteFound(uint32_t window, uint32_t id);
  void Stage(const Order& order, uint32_t window);
  void NoteMove(uint32_t window, const UpdatedEvent& updated, Priority priority);
  void KeepCopies(uint32_t window, uint32_t id);
  void LeaveFreely(uint32_t window, uint32_t id, Tier from);
  void DropDuplicatesOf(uint32_t window, uint32_t id);
  void Apply(uint32_t window, const CreatedEvent& created);
  void Apply(uint32_t window, const StoredEvent& stored);
  void Apply(uint32_t window, const UpdatedEvent& updated);
  void Apply(uint32_t window, const RemovedEvent& removed);
  // follow_removals.cc
  void ClearWindow(uint32_t window);
  void RemoveBlock(uint32_t window, const RemovedEvent& removed, size_t index);
  void NoteLeftForSpace(uint32_t window, uint32_t id, RemovalReason reason);
  void CountRemoval(RemovalReason reason, Tier tier);

  void EndPin(const EndedPin& ended);
  void ApplyOrder(const Order& order);
  bool IsFull(uint32_t window, Tier tier) const;
  void NoteMoves(const EventBatch& events);
  void NoteStored();
  void NoteDetached();

  World& world_;
  const Scope& scope_;
  std::vector<Move> moves_;
  std::vector<HeldBlock> for_space_;
  std::vector<HeldBlock> stored_;
  std::vector<HeldBlock> changed_;  // Blocks with changed copies.
  std::vector<Arrived> arrived_;    // By orders.
  std::vector<HeldBlock> copied_;   // Blocks copied in part.
  std::vector<Victims> victims_;
  std::vector<HeldBlock> off_disk_;  // Blocks that lose their copy on disk, and stay cached.
  std::optional<Priority> highest_staged_;
  size_t expiries_ = 0;
};

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_FOLLOW_H_

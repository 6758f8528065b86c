// The slots' bytes, as one value for each token, and the running copies between them. They stand
// for pools and Transfers.
#ifndef PAGODA_TESTS_SIM_RECORD_MEMORY_H_
#define PAGODA_TESTS_SIM_RECORD_MEMORY_H_

#include <array>
#include <cstdint>
#include <vector>

#include "pools/order.h"
#include "tests/sim/words/config.h"
#include "tests/sim/words/content.h"
#include "tests/sim/words/random.h"

namespace pagoda::sim {

// A copy reads its source and writes its target at some moments between its start and its end. It
// can start as soon as the copies named by Order::after are done. The core must prevent
// everything else that must not happen in between.
class Memory {
 public:
  explicit Memory(const SimConfig* config);

  // All values of a slot.
  Value* slot(uint32_t window, SlotRef slot) {
    return values_[window][Index(slot.tier)].data() + size_t{slot.slot.value()} * tokens_per_block_;
  }
  const Value* slot(uint32_t window, SlotRef slot) const {
    return const_cast<Memory*>(this)->slot(window, slot);
  }
  uint32_t num_slots(uint32_t window, Tier tier) const {
    return static_cast<uint32_t>(touches_[window][Index(tier)].size());
  }

  // Stops the run if the order is invalid: a gap in the tickets, or a slot that does not exist.
  void Add(const Order& order, Random& random);
  // Starts some of the copies that can start.
  void StartSome(Random& random, uint32_t percent);
  // Picks a copy that has started. False if none has and none can start.
  bool PickStarted(Random& random, Ticket* ticket);
  // Carries out the rest of a copy. A failed one leaves garbage in its target.
  enum class Outcome { kDone, kFailed };
  struct Ended {
    uint32_t window = 0;
    SlotRef lost;  // Its target if that can be garbage; else no slot.
  };
  Ended End(Ticket ticket, Outcome outcome, Random& random);

  // All copies stop at once, and tickets begin anew. Their targets can be garbage.
  void Crash(Random& random);

  size_t pending() const { return copies_.size(); }
  Ticket first_pending() const { return copies_.front().order.ticket; }
  Ticket last() const { return last_; }
  // Every copy up to this ticket has ended.
  Ticket completed() const {
    return copies_.empty() ? last_ : Ticket{copies_.front().order.ticket.value() - 1};
  }
  // Whether a copy that is not done reads or writes the slot.
  bool Touched(uint32_t window, SlotRef slot) const {
    return touches_[window][Index(slot.tier)][slot.slot.value()].any > 0;
  }
  // Whether a copy that is not done writes it.
  bool Arriving(uint32_t window, SlotRef slot) const {
    return touches_[window][Index(slot.tier)][slot.slot.value()].writes > 0;
  }

 private:
  struct Copy {
    Order order;
    uint32_t window = 0;
    bool started = false;
    bool reads_first = false;   // Reads at its start, not at its end.
    bool writes_first = false;  // Writes at its start, not at its end.
    bool suspect = false;       // The copy that was to bring its source failed.
    std::array<Value, kMaxTokensPerBlock> buffer;
  };
  struct Touches {
    uint16_t any = 0, writes = 0;
  };

  static size_t Index(Tier tier) { return tier.value(); }
  bool Done(Ticket ticket) const;
  bool MayStart(const Copy& copy) const;
  void Start(Copy& copy);
  void Read(Copy& copy);
  void Write(const Copy& copy);

  const SimConfig* const config_;
  const uint32_t tokens_per_block_;
  std::array<std::array<std::vector<Value>, kMaxTiers>, kMaxWindows> values_;
  std::array<std::array<std::vector<Touches>, kMaxTiers>, kMaxWindows> touches_;
  std::vector<Copy> copies_;  // Not done, ascending by ticket.
  Ticket last_;
};

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_RECORD_MEMORY_H_

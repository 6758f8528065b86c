// The slot journal as a daemon writes it down: the reported content of each slot. A restart finds
// the cache again from this and the memory alone.
#ifndef PAGODA_TESTS_SIM_RECORD_JOURNAL_H_
#define PAGODA_TESTS_SIM_RECORD_JOURNAL_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "manager/words/recovered_block.h"
#include "manager/words/slot_journal.h"
#include "tests/sim/record/ledger.h"
#include "tests/sim/record/memory.h"
#include "tests/sim/record/shadow.h"
#include "tests/sim/words/config.h"
#include "tests/sim/words/content.h"

namespace pagoda::sim {

class Journal {
 public:
  explicit Journal(const SimConfig* config);

  // Called in the order in which the core reports the changes.
  void Apply(const std::vector<SlotChange>& changes);

  // Stops the run if a slot's entry differs from the tree's block. While `resetting`, the journal
  // still has entries of blocks that the reset has cut off.
  void Check(uint32_t window, const Shadow& shadow, const Ledger& ledger, bool resetting) const;

  // What another run of the daemon finds in a window: contents with their bytes and with a complete
  // path to the root, parents before children. Under full attention no block is nearer than its
  // parent. (A daemon also finds holes again; tests/manager/restart/recovery_test.cc tests that.)
  RecoveredWindow Recover(uint32_t window, const Memory& memory) const;

 private:
  struct Entry {
    SlotContent content;
    Ticket ready;
    std::vector<TokenKey> keys;
  };
  using Entries = std::vector<std::optional<Entry>>;  // By slot.

  const Entries& At(uint32_t window, Tier tier) const { return entries_[window][tier.value()]; }

  const SimConfig* config_;
  std::array<std::array<Entries, kMaxTiers>, kMaxWindows> entries_;
};

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_RECORD_JOURNAL_H_

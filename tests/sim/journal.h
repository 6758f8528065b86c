// The slot journal as a daemon writes it down: what each slot was said to hold. A restart finds the
// cache again from this and from the memory alone.
#ifndef PAGODA_TESTS_SIM_JOURNAL_H_
#define PAGODA_TESTS_SIM_JOURNAL_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "manager/recovered_block.h"
#include "manager/slot_journal.h"
#include "tests/sim/config.h"
#include "tests/sim/content.h"
#include "tests/sim/ledger.h"
#include "tests/sim/memory.h"
#include "tests/sim/shadow.h"

namespace pagoda::sim {

class Journal {
 public:
  explicit Journal(const SimConfig* config);

  // In the order in which the core tells them.
  void Apply(const std::vector<SlotChange>& changes);

  // Stops the run where a slot's entry is not what the tree says about its block.
  // Of what a reset has cut off it still tells while `resetting`.
  void Check(uint32_t window, const Shadow& shadow, const Ledger& ledger, bool resetting) const;

  // What another run of the daemon finds in a window: contents whose bytes are there, and whose
  // path to the root is there too, parents before children. Under full attention no block is nearer
  // than its parent. (A daemon also finds holes again; manager/recovery_test.cc tests that.)
  RecoveredWindow Recover(uint32_t window, const Memory& memory) const;

 private:
  struct Entry {
    SlotContent content;
    Ticket ready;
    std::vector<TokenKey> keys;
  };
  using Entries = std::vector<std::optional<Entry>>;  // By slot.

  const Entries& At(uint32_t window, Tier tier) const {
    return entries_[window][static_cast<size_t>(tier)];
  }

  const SimConfig* config_;
  std::array<std::array<Entries, kMaxTiers>, kMaxWindows> entries_;
};

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_JOURNAL_H_

// The tickets of the core's orders for a disk, and the orders that the carrier has not taken yet.
#ifndef PAGODA_MANAGER_SERVICES_FILE_LANES_H_
#define PAGODA_MANAGER_SERVICES_FILE_LANES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "base/check.h"
#include "manager/words/file_orders.h"
#include "pools/copy_order.h"

namespace pagoda {

// For the lanes kFetch and kBackup of one cache. Thread-compatible. Memory and cost are
// proportional to the orders that have not ended.
//
// Invariants
// 1. Tickets count up from 1 in each lane. A window's commands are in the order of their tickets.
// 2. completed(lane): everything up to it has been reported, or given up.
class FileLanes {
 public:
  // The next ticket of the lane, for a command of that window.
  Ticket Give(Lane lane, uint32_t window_index) {
    Of& of = At(lane);
    of.last = Ticket{of.last.value() + 1};
    of.windows.emplace(of.last, window_index);
    of.open.insert(of.last);
    return of.last;
  }
  // The carrier has reported the ticket. Returns its window; nothing if the ticket is unknown. The
  // ticket counts as open until Close.
  std::optional<uint32_t> Report(Lane lane, Ticket ticket) {
    Of& of = At(lane);
    const auto it = of.windows.find(ticket);
    if (it == of.windows.end()) return std::nullopt;
    const uint32_t window = it->second;
    of.windows.erase(it);
    return window;
  }
  // No caller waits for the ticket any more. A second call does nothing.
  void Close(Lane lane, Ticket ticket) { At(lane).open.erase(ticket); }

  Ticket completed(Lane lane) const {
    const Of& of = At(lane);
    return of.open.empty() ? of.last : Ticket{of.open.begin()->value() - 1};
  }
  Ticket last(Lane lane) const { return At(lane).last; }

  void Order(FileCommand command) { commands_.push_back(std::move(command)); }
  // The commands since the last call.
  FileCommands Take() { return std::exchange(commands_, {}); }

 private:
  struct Of {
    Ticket last;
    absl::btree_map<Ticket, uint32_t> windows;  // Not reported.
    absl::btree_set<Ticket> open;
  };

  Of& At(Lane lane) {
    PAGODA_CHECK(lane != Lane::kMemory, "copies between memories have other tickets");
    return lanes_[static_cast<size_t>(lane)];
  }
  const Of& At(Lane lane) const { return const_cast<FileLanes*>(this)->At(lane); }

  std::array<Of, kNumLanes> lanes_;
  FileCommands commands_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SERVICES_FILE_LANES_H_

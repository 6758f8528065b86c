// The tickets of the core's orders, and the orders that no carrier has taken yet.
#ifndef PAGODA_MANAGER_SERVICES_ORDER_LANES_H_
#define PAGODA_MANAGER_SERVICES_ORDER_LANES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "pools/order.h"

namespace pagoda {

// Thread-compatible. Memory and cost are proportional to the orders that have not ended.
//
// Invariants
// 1. Tickets count up from 1 in each lane. A lane's orders are taken in the order of their tickets.
// 2. completed(lane): everything up to it has been reported, or given up.
class OrderLanes {
 public:
  // Gives the order the next ticket of its lane, and returns the ticket. A drop gets none.
  Ticket Add(Order order) {
    Of& of = At(order.lane);
    if (order.kind != Order::Kind::kDrop) {
      order.ticket = of.last = Ticket{of.last.value() + 1};
      of.windows.emplace(of.last, order.window_index);
      of.open.insert(of.open.end(), of.last);
    }
    orders_.push_back(std::move(order));
    return orders_.back().ticket;
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
  // The orders since the last call.
  std::vector<Order> Take() { return std::exchange(orders_, {}); }

 private:
  struct Of {
    Ticket last;
    absl::flat_hash_map<Ticket, uint32_t> windows;  // Not reported.
    absl::btree_set<Ticket> open;
  };

  Of& At(Lane lane) { return lanes_[static_cast<size_t>(lane)]; }
  const Of& At(Lane lane) const { return lanes_[static_cast<size_t>(lane)]; }

  std::array<Of, kNumLanes> lanes_;
  std::vector<Order> orders_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SERVICES_ORDER_LANES_H_

// All windows of a cache.
#ifndef PAGODA_MANAGER_WINDOW_WINDOW_SET_H_
#define PAGODA_MANAGER_WINDOW_WINDOW_SET_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "manager/window/window_block_manager.h"
#include "pools/types.h"

namespace pagoda {

// Owns the windows. Thread-compatible. It changes no window; its users do.
//
// Invariant: the windows ascend by size, and a window's place is its index. The last one is the
// largest.
class WindowSet {
 public:
  explicit WindowSet(TokensPerBlock tokens_per_block) : tokens_per_block_(tokens_per_block) {}
  WindowSet(const WindowSet&) = delete;
  WindowSet& operator=(const WindowSet&) = delete;

  // REQUIRES: the window is larger than those before it, and its index is size().
  void Add(std::unique_ptr<WindowBlockManager> window);

  size_t size() const { return windows_.size(); }
  auto begin() const { return windows_.begin(); }
  auto end() const { return windows_.end(); }
  WindowBlockManager* operator[](size_t index) const { return windows_[index].get(); }
  WindowBlockManager* front() const { return windows_.front().get(); }
  WindowBlockManager* back() const { return windows_.back().get(); }
  // The window of this size; nullptr if the cache has none.
  WindowBlockManager* Find(WindowSize size) const {
    for (const auto& window : windows_) {
      if (window->window() == size) return window.get();
    }
    return nullptr;
  }
  // The window of this size. Errors: UNKNOWN_WINDOW.
  absl::StatusOr<WindowBlockManager*> Require(WindowSize size) const;

  TokensPerBlock tokens_per_block() const { return tokens_per_block_; }
  bool any_slides() const { return any_slides_; }
  // The entries of a sequence's table in each window.
  uint32_t TableSize(uint64_t reserved_tokens) const {
    return tokens_per_block_.BlocksFor(reserved_tokens);
  }
  // Blocks that have a holder, over all windows and tiers.
  uint64_t HeldBlocks() const;

  // Stops the process unless free + cached + active + pinned + in flight = capacity in every window
  // and tier, by the counters. Cost: O(windows).
  void CheckAccounting() const {
    for (const auto& window : windows_) window->CheckAccounting();
  }

 private:
  const TokensPerBlock tokens_per_block_;
  std::vector<std::unique_ptr<WindowBlockManager>> windows_;
  bool any_slides_ = false;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WINDOW_WINDOW_SET_H_

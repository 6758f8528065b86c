#include "manager/window/window_set.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/counted.h"
#include "base/error.h"

namespace pagoda {

void WindowSet::Add(std::unique_ptr<WindowBlockManager> window) {
  PAGODA_CHECK(window->index() == windows_.size(), "a window's place is its index");
  PAGODA_CHECK(windows_.empty() || windows_.back()->window() < window->window(),
               "the windows ascend");
  any_slides_ = any_slides_ || window->sliding();
  windows_.push_back(std::move(window));
}

absl::StatusOr<WindowBlockManager*> WindowSet::Require(WindowSize size) const {
  if (WindowBlockManager* window = Find(size); window != nullptr) return window;
  const std::string wanted =
      size == kFullAttention ? "full attention" : Counted(size.value(), "token");
  return MakeError(Reason::kUnknownWindow, absl::StrCat("the cache has no window of ", wanted));
}

uint64_t WindowSet::HeldBlocks() const {
  uint64_t held = 0;
  for (const auto& window : windows_) held += window->held_blocks();
  return held;
}

}  // namespace pagoda

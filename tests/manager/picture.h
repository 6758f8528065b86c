// Everything visible of a core, as text, to check that an operation left no trace.
#ifndef PAGODA_TESTS_MANAGER_PICTURE_H_
#define PAGODA_TESTS_MANAGER_PICTURE_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "manager/block_manager.h"

namespace pagoda {

inline std::string PictureOf(const WindowStats& window) {
  std::string text = absl::StrCat("window ", WindowName(window.window), ", holes ", window.holes,
                                  ", pinned ", window.pinned_blocks, "\n");
  for (const TierOccupancy& tier : window.tiers) {
    absl::StrAppend(&text, "  free ", tier.free, ", cached ", tier.cached, ", active ", tier.active,
                    ", pinned ", tier.pinned, ", in flight ", tier.in_flight, "\n");
  }
  const WindowCounters& c = window.counters;
  absl::StrAppend(&text, "  allocated ", c.allocated_blocks, ", freed ", c.freed_blocks);
  absl::StrAppend(&text, ", evicted ", c.evicted_blocks, ", displaced ", c.displaced_blocks);
  absl::StrAppend(&text, ", offloaded ", c.offloaded_blocks, ", onboarded ", c.onboarded_blocks);
  absl::StrAppend(&text, ", copied ", c.partial_copies, ", taken over ", c.taken_over_blocks);
  absl::StrAppend(&text, ", merged ", c.merged_blocks, ", lost ", c.lost_blocks);
  absl::StrAppend(&text, ", expired ", c.expired_priorities, ", looked up ",
                  c.prefix_lookup_tokens);
  absl::StrAppend(&text, ", hit ", c.prefix_hit_tokens, " and ", c.secondary_hit_tokens, "\n");
  return text;
}

inline std::string PictureOf(const BlockManager& core) {
  const ManagerStats stats = core.Stats();
  std::string text = absl::StrCat("revision ", core.revision().value(), ", tickets ",
                                  core.completed_ticket().value(), " of ",
                                  core.last_ticket().value(), ", sessions ", stats.sessions,
                                  ", sequences ", stats.sequences, ", pins ", stats.pins, "\n");
  for (const WindowStats& window : stats.windows) {
    text += PictureOf(window);
    for (const TreeEntry& entry : core.DumpTree(window.window)) {
      absl::StrAppend(&text, "  block ", entry.id.value(), " below ", entry.parent.value(), ", ",
                      entry.tokens.size(), " tokens, hash ", entry.hash.value());
      absl::StrAppend(&text, ", tier ", static_cast<int>(entry.tier), ", priority ",
                      entry.priority.value(), "\n");
    }
  }
  return text;
}

}  // namespace pagoda

#endif  // PAGODA_TESTS_MANAGER_PICTURE_H_

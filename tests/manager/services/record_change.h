#ifndef PAGODA_TESTS_MANAGER_SERVICES_RECORD_CHANGE_H_
#define PAGODA_TESTS_MANAGER_SERVICES_RECORD_CHANGE_H_

#include <variant>

#include "manager/services/event_recorder.h"

namespace pagoda {

// Records a change of one block, as TreeModel draws it.
inline void RecordChange(const decltype(Event::what)& change, WindowSize window,
                         EventRecorder& recorder) {
  if (const auto* stored = std::get_if<StoredEvent>(&change)) {
    recorder.Stored(
        window, *stored->name_space,
        {stored->parent, stored->parent_hash.value_or(BlockHash{}), stored->first_token},
        stored->blocks[0], {stored->tokens, stored->extras});
  } else if (const auto* updated = std::get_if<UpdatedEvent>(&change)) {
    const TreeBlock block{updated->id, updated->hash, updated->end_token};
    if (updated->tier || updated->lower) {
      recorder.CopiesChanged(window, block, updated->tier.value_or(Change<Tier>{}),
                             updated->lower.value_or(Change<TierSet>{}));
    }
    if (updated->priority) {
      recorder.PriorityChanged(window, block, *updated->priority);
    }
  } else if (const auto* removed = std::get_if<RemovedEvent>(&change)) {
    recorder.Removed(window, removed->reason,
                     {removed->blocks[0], removed->hashes[0], removed->end_tokens[0]});
  }
}

}  // namespace pagoda

#endif  // PAGODA_TESTS_MANAGER_SERVICES_RECORD_CHANGE_H_

// Which blocks have become worth publishing to a store, by the events and the matches.
#ifndef PAGODA_TESTS_SIM_RECORD_PUBLISH_MODEL_H_
#define PAGODA_TESTS_SIM_RECORD_PUBLISH_MODEL_H_

#include <cstdint>
#include <vector>

#include "manager/block_manager.h"
#include "manager/words/publishable_prefix.h"
#include "tests/sim/record/shadow.h"
#include "tests/sim/words/config.h"
#include "tests/sim/words/content.h"
#include "tests/sim/words/coverage.h"

namespace pagoda::sim {

// Counts the matches of each block of the largest window, and lists the blocks as the core must.
// It keeps a plain list, and finds everything by a search of it.
class PublishModel {
 public:
  explicit PublishModel(const SimConfig* config) : config_(config) {}

  // The core is a new one.
  void Clear() {
    lives_.clear();
    listed_.clear();
  }
  // A block of the largest window is stored: its life in the cache begins.
  void Stored(uint32_t id);
  // A match uses the block, which is in the tree.
  void Used(uint32_t id);
  // Takes at most `max_prefixes` prefixes from the core, which must be those listed here, the
  // newest first. `shadow`: of the largest window.
  void Take(BlockManager& core, const Shadow& shadow, uint32_t max_prefixes, Coverage& coverage);

 private:
  struct Life {
    uint32_t number = 0;  // Grows with each life of the id.
    uint32_t uses = 0;
  };
  struct Listed {
    uint32_t id;
    uint32_t life;
  };

  Life& LifeOf(uint32_t id) {
    if (id >= lives_.size()) lives_.resize(id + 1);
    return lives_[id];
  }
  void List(uint32_t id);
  bool IsWorth(const Shadow& shadow, const Listed& listed) const;
  bool HasBytes(const Node& node) const { return node.cached() && !config_->IsOnDisk(node.tier); }
  std::vector<uint32_t> PathTo(const Shadow& shadow, uint32_t id) const;
  void Compare(const PublishablePrefix& prefix, const Shadow& shadow,
               const std::vector<uint32_t>& path) const;

  const SimConfig* const config_;
  std::vector<Life> lives_;     // By id.
  std::vector<Listed> listed_;  // The oldest first.
};

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_RECORD_PUBLISH_MODEL_H_

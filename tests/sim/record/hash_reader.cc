#include "tests/sim/record/hash_reader.h"

#include <vector>

#include "absl/status/status.h"
#include "tests/sim/words/fail.h"

namespace pagoda::sim {

void HashReader::See(const Event& event) {
  filter_.Apply(event, [this](const Event& part) {
    const absl::Status status = mirror_.Apply(part);
    SIM_CHECK(status.ok(), "hashes by chunks of ", filter_.chunk_tokens,
              " tokens: ", status.ToString());
  });
}

void HashReader::Compare(const SimConfig& config, uint32_t window, const Shadow& tree) const {
  std::vector<HashMirror::Entry> expected;
  for (uint32_t id = 0; id < tree.num_ids(); ++id) {
    const Node& node = tree.node(id);
    if (!node.cached() || node.count != config.tokens_per_block) continue;
    if ((node.depth + 1) * config.tokens_per_block % filter_.chunk_tokens != 0) continue;
    expected.push_back({.hash = node.hash, .tier = node.tier, .lower = node.lower});
  }
  const absl::Status status = mirror_.Compare(config.windows[window].size, expected);
  SIM_CHECK(status.ok(), "hashes by chunks of ", filter_.chunk_tokens,
            " tokens: ", status.ToString());
}

}  // namespace pagoda::sim

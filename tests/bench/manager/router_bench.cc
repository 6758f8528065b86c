// A router's index at the size of a large cluster, on one thread: what it takes in memory, how many
// updates it absorbs, and how long a look-up takes. `deploy/bench.sh router` runs it.
//
//   router_bench [--smoke] [NODES...]      without NODES: 10, 100 and 1000
//
// Each node has 62,500 chunks: a million blocks of 16 tokens in chunks of 256. They are 16 system
// prompts of 8 chunks, which each node has, and conversations of 24 chunks behind one of them. A
// conversation is on one node, and a third of them on a second one.
//
// Figures, with the number of nodes at their ends:
//   router_bytes_*    bytes for each record; next to 8 + 2, a hash and a node's number
//   router_update_*   a conversation leaves and another one comes: records a second; next to random
//                     changes of 8 bytes in memory of the same size
//   router_lookup_*   microseconds to find the eight best nodes for a prompt of 32 chunks, 99th
//                     percentile; next to 32 random reads, one after another, in that memory
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "clients/router/prefix_index.h"
#include "tests/bench/figure.h"

namespace pagoda::bench {
namespace {

constexpr uint32_t kSystemPrompts = 16;
constexpr uint32_t kSystemChunks = 8;
constexpr uint32_t kChunks = 24;  // The chunks of a conversation behind its system prompt.

double Microseconds(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

// A number that looks random, from two numbers.
uint64_t Hash(uint64_t a, uint64_t b) {
  uint64_t hash = a * 0x9E3779B97F4A7C15u + b + 1;
  hash = (hash ^ hash >> 30) * 0xBF58476D1CE4E5B9u;
  hash = (hash ^ hash >> 27) * 0x94D049BB133111EBu;
  return hash ^ hash >> 31;
}

BlockHash SystemChunk(uint32_t prompt, uint32_t chunk) {
  return BlockHash(Hash(uint64_t{1} << 60 | prompt, chunk));
}
BlockHash ConversationChunk(uint64_t conversation, uint32_t chunk) {
  return BlockHash(Hash(conversation, chunk));
}

class Cluster {
 public:
  Cluster(uint32_t nodes, uint32_t chunks_per_node) : nodes_(nodes), random_(1) {
    for (uint32_t node = 0; node < nodes; ++node) {
      for (uint32_t prompt = 0; prompt < kSystemPrompts; ++prompt) {
        for (uint32_t chunk = 0; chunk < kSystemChunks; ++chunk) {
          index_.Add(NodeId(static_cast<uint16_t>(node)), SystemChunk(prompt, chunk), kPrimaryTier);
        }
      }
    }
    while (index_.size() < uint64_t{nodes} * chunks_per_node) Come();
  }

  const PrefixIndex& index() const { return index_; }

  // The oldest conversation leaves, and a new one comes. Returns the number of records changed.
  uint64_t Turn() { return Leave() + Come(); }

  // The prompt of a random conversation that is cached.
  std::vector<BlockHash> Prompt() {
    const uint64_t conversation = first_ + random_() % (next_ - first_);
    std::vector<BlockHash> chunks;
    for (uint32_t i = 0; i < kSystemChunks; ++i) {
      chunks.push_back(SystemChunk(conversation % kSystemPrompts, i));
    }
    for (uint32_t i = 0; i < kChunks; ++i) chunks.push_back(ConversationChunk(conversation, i));
    return chunks;
  }

 private:
  uint32_t Holders(uint64_t conversation) const { return conversation % 3 == 0 ? 2 : 1; }
  NodeId Holder(uint64_t conversation, uint32_t i) const {
    return NodeId(static_cast<uint16_t>((Hash(conversation, 1000) + i) % nodes_));
  }

  uint64_t Come() {
    const uint64_t conversation = next_++;
    for (uint32_t holder = 0; holder < Holders(conversation); ++holder) {
      for (uint32_t i = 0; i < kChunks; ++i) {
        index_.Add(Holder(conversation, holder), ConversationChunk(conversation, i),
                   i % 2 == 0 ? kPrimaryTier : Tier(1));
      }
    }
    return Holders(conversation) * kChunks;
  }
  uint64_t Leave() {
    const uint64_t conversation = first_++;
    for (uint32_t holder = 0; holder < Holders(conversation); ++holder) {
      for (uint32_t i = kChunks; i > 0; --i) {
        index_.Remove(Holder(conversation, holder), ConversationChunk(conversation, i - 1));
      }
    }
    return Holders(conversation) * kChunks;
  }

  const uint32_t nodes_;
  std::mt19937_64 random_;
  PrefixIndex index_;
  uint64_t first_ = 0, next_ = 0;  // The conversations that are cached.
};

void Measure(uint32_t nodes, uint32_t chunks_per_node, bool is_smoke) {
  const std::string end = absl::StrCat("_", nodes);
  Cluster cluster(nodes, chunks_per_node);
  const auto records = static_cast<double>(cluster.index().size());
  const uint64_t bytes = cluster.index().memory_bytes();
  Print({"router_bytes" + end, static_cast<double>(bytes) / records, "bytes",
         "a hash and a node's number", 10});

  std::vector<uint64_t> memory(bytes / sizeof(uint64_t), 1);
  std::mt19937_64 random(2);
  const int turns = is_smoke ? 100 : 20'000;
  const auto [update, change] = InterleavedMedians(
      [&] {
        uint64_t changed = 0;
        const double seconds = Seconds([&] {
          for (int i = 0; i < turns; ++i) changed += cluster.Turn();
        });
        return static_cast<double>(changed) / seconds;
      },
      [&] {
        const uint64_t changes = static_cast<uint64_t>(turns) * 64;
        uint64_t at = random();
        const double seconds = Seconds([&] {
          for (uint64_t i = 0; i < changes; ++i) {
            at = Hash(at, i);
            memory[at % memory.size()] += i;
          }
        });
        return static_cast<double>(changes) / seconds;
      });
  Print({"router_update" + end, update, "records/s", "random changes of 8 bytes", change});

  const int lookups = is_smoke ? 200 : 20'000;
  const auto [lookup, reads] = InterleavedMedians(
      [&] {
        std::vector<double> taken;
        for (int i = 0; i < lookups; ++i) {
          const std::vector<BlockHash> prompt = cluster.Prompt();
          size_t found = 0;
          taken.push_back(Microseconds([&] { found = cluster.index().Find(prompt, 8).size(); }));
          PAGODA_CHECK(found == 8, "each node has the system prompts");
        }
        return Percentile(std::move(taken), 0.99);
      },
      [&] {
        std::vector<double> taken;
        uint64_t at = random();
        for (int i = 0; i < lookups; ++i) {
          taken.push_back(Microseconds([&] {
            for (uint32_t read = 0; read < kSystemChunks + kChunks; ++read) {
              at = Hash(at, memory[at % memory.size()]);
            }
          }));
        }
        PAGODA_CHECK(at != 0, "the reads are not removed");
        return Percentile(std::move(taken), 0.99);
      });
  Print({"router_lookup" + end, lookup, "us", "32 random reads", reads});
}

}  // namespace
}  // namespace pagoda::bench

int main(int argc, char** argv) {
  bool is_smoke = false;
  std::vector<uint32_t> nodes;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--smoke") == 0) {
      is_smoke = true;
    } else {
      nodes.push_back(static_cast<uint32_t>(std::strtoul(argv[i], nullptr, 10)));
      if (nodes.back() < 10 || nodes.back() > pagoda::PrefixIndex::kMaxNodes) {
        std::fprintf(stderr, "router_bench [--smoke] [NODES...]: 10 to 16384 nodes\n");
        return 2;
      }
    }
  }
  if (nodes.empty())
    nodes = is_smoke ? std::vector<uint32_t>{10} : std::vector<uint32_t>{10, 100, 1000};
  for (const uint32_t count : nodes) {
    pagoda::bench::Measure(count, is_smoke ? 2000 : 62'500, is_smoke);
  }
  return 0;
}

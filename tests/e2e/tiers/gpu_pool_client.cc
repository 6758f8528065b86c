// gpu_pool_client ENDPOINT write|check SEED COUNT
// An engine without a model. Its KV is a number made from the seed, the prompt and the block's
// place in it. `write`: runs COUNT prompts of three blocks, and writes their KV into the primary
// pools through its own mapping. `check`: runs them again with another token behind each, waits
// until the matched blocks are there, and compares their bytes through a mapping for reading.
// Prints the number of blocks. Exit status 1 if a block has other bytes, 3 if a step fails.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "clients/cpp/grpc_cache_client.h"

namespace pagoda {
namespace {

constexpr uint32_t kBlocks = 3;  // The blocks of a prompt.

[[noreturn]] void Give(const absl::Status& status) {
  std::printf("%s\n", status.ToString().c_str());
  std::exit(3);
}

template <class T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) Give(value.status());
  return *std::move(value);
}

std::vector<std::byte> Kv(uint64_t seed, uint32_t prompt, uint32_t block, const MappedPool& pool) {
  std::vector<std::byte> bytes(pool.mapping().layout.slot_stride_bytes());
  uint64_t state = (seed << 32) + prompt * 1000 + block * 10 + pool.mapping().pool_index;
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

class Run {
 public:
  Run(CacheClient* client, MemoryAccess access, uint64_t seed)
      : client_(client), access_(access), seed_(seed) {
    for (auto& pool : Must(client_->MapPools(access))) {
      if (pool->mapping().tier == kPrimaryTier) pools_.push_back(std::move(pool));
    }
  }

  // Returns the blocks that were written or compared.
  uint32_t Prompt(uint32_t prompt) {
    const uint32_t block_tokens = pools_.front()->mapping().layout.tokens_per_block;
    std::vector<TokenId> tokens;
    for (uint32_t i = 0; i < kBlocks * block_tokens; ++i) tokens.push_back(prompt * 100 + i);
    if (access_ == MemoryAccess::kRead) tokens.push_back(7);
    const SequenceId sequence(prompt + 1);
    const auto added =
        Must(RunOne<AddedSequence>(*client_, AddSequence{.sequence = sequence, .tokens = tokens}));
    if (added.ready != Ticket(0)) {
      Must(RunOne<WaitedForTicket>(*client_, WaitForTicket{.ticket = added.ready}));
    }
    const uint32_t blocks =
        access_ == MemoryAccess::kRead ? added.matched_tokens / block_tokens : kBlocks;
    for (uint32_t i = 0; i < blocks; ++i) {
      for (auto& pool : pools_) Block(*pool, added.tables.front().blocks[i].slot, prompt, i);
    }
    if (access_ == MemoryAccess::kReadWrite) {
      Must(RunOne<CommittedTokens>(
          *client_, CommitTokens{.sequence = sequence,
                                 .computed_tokens = static_cast<uint32_t>(tokens.size())}));
    }
    Must(RunOne<FreedSequence>(*client_, FreeSequence{.sequence = sequence}));
    return blocks;
  }

  std::string place() const { return PlaceName(pools_.front()->memory().place); }
  uint32_t wrong() const { return wrong_; }

 private:
  void Block(MappedPool& pool, SlotIndex slot, uint32_t prompt, uint32_t block) {
    const std::vector<std::byte> expected = Kv(seed_, prompt, block, pool);
    if (access_ == MemoryAccess::kReadWrite) {
      if (const absl::Status status = pool.WriteSlot(slot, expected); !status.ok()) Give(status);
      return;
    }
    std::vector<std::byte> bytes(expected.size());
    const absl::Status status = pool.ReadSlot(slot, absl::MakeSpan(bytes));
    if (!status.ok()) Give(status);
    if (bytes != expected) ++wrong_;
  }

  CacheClient* const client_;
  const MemoryAccess access_;
  const uint64_t seed_;
  std::vector<std::unique_ptr<MappedPool>> pools_;
  uint32_t wrong_ = 0;
};

int Main(int argc, char** argv) {
  uint64_t seed = 0;
  uint32_t count = 0;
  if (argc != 5 || !absl::SimpleAtoi(argv[3], &seed) || !absl::SimpleAtoi(argv[4], &count)) {
    std::fprintf(stderr, "usage: gpu_pool_client ENDPOINT write|check SEED COUNT\n");
    return 2;
  }
  const auto client =
      Must(OpenGrpcCacheClient({.endpoint = argv[1], .client_name = "gpu_pool_client"}));
  const bool writes = std::string(argv[2]) == "write";
  Run run(client.get(), writes ? MemoryAccess::kReadWrite : MemoryAccess::kRead, seed);
  uint32_t blocks = 0;
  for (uint32_t prompt = 0; prompt < count; ++prompt) blocks += run.Prompt(prompt);
  std::printf("%s: %u blocks, %u wrong\n", run.place().c_str(), blocks, run.wrong());
  return run.wrong() > 0 ? 1 : 0;
}

}  // namespace
}  // namespace pagoda

int main(int argc, char** argv) { return pagoda::Main(argc, argv); }

// The throughput of a store on a Redis server, and the CPU seconds of this process for each GB:
// blocks into shared memory and out of it, verified, with two batches under way. Also the same gets
// by hiredis if it was there when this was compiled: pipelined, and one copy for each value,
// without a check. tests/bench/tiers/store_bench.py runs it beside redis-benchmark.
#include <sys/mman.h>

#ifdef PAGODA_HAS_HIREDIS
#include <hiredis/hiredis.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/check.h"
#include "pools/store/redis_store.h"
#include "pools/store/stored_value.h"
#include "tests/bench/figure.h"

namespace pagoda::bench {
namespace {

constexpr uint32_t kBatchBlocks = 16;
constexpr uint32_t kBatches = 2;  // Under way.
constexpr absl::Duration kTimeout = absl::Seconds(60);
constexpr double kGiga = 1e9;

StoreKey KeyOf(uint32_t number) {
  StoreKey key;
  std::memcpy(key.digest.data(), &number, sizeof number);
  return key;
}

// Begins batches of operations so that some are always under way.
class Stream {
 public:
  // `begin` begins the batch of the blocks [first, first + kBatchBlocks), into or out of the memory
  // of that batch.
  using Begin = std::function<void(uint32_t first, uint32_t memory, Store::Done done)>;

  void Run(uint32_t blocks, const Begin& begin) {
    for (uint32_t first = 0; first < blocks; first += kBatchBlocks) {
      const uint32_t memory = Take();
      begin(first, memory, [this, memory](const std::vector<StoreOutcome>& outcomes) {
        for (const StoreOutcome outcome : outcomes) {
          if (outcome == StoreOutcome::kOk) continue;
          std::fprintf(stderr, "store_bench: a block is %s\n", StoreOutcomeName(outcome));
          std::exit(1);
        }
        absl::MutexLock lock(&mutex_);
        free_.push_back(memory);
      });
    }
    for (uint32_t i = 0; i < kBatches; ++i) Take();
    for (uint32_t i = 0; i < kBatches; ++i) free_.push_back(i);
  }

 private:
  uint32_t Take() {
    absl::MutexLock lock(&mutex_,
                         absl::Condition(
                             +[](std::vector<uint32_t>* free) { return !free->empty(); }, &free_));
    const uint32_t memory = free_.back();
    free_.pop_back();
    return memory;
  }

  absl::Mutex mutex_;
  std::vector<uint32_t> free_ = {0, 1};
};

void Report(const char* figure, uint64_t bytes, double seconds, double cpu_seconds) {
  const double gigabytes = double(bytes) / kGiga;
  std::printf("{\"figure\": \"%s\", \"gb_per_s\": %.4g, \"cpu_s_per_gb\": %.4g}\n", figure,
              gigabytes / seconds, cpu_seconds / gigabytes);
  std::fflush(stdout);
}

void Measure(const char* figure, uint64_t bytes, const std::function<void()>& body) {
  const double before = CpuSeconds();
  const double seconds = Seconds(body);
  Report(figure, bytes, seconds, CpuSeconds() - before);
}

#ifdef PAGODA_HAS_HIREDIS
void MeasureHiredis(uint16_t port, uint64_t block_bytes, uint32_t blocks, uint32_t keys,
                    absl::Span<std::byte> memory) {
  redisContext* const context = redisConnect("127.0.0.1", port);
  PAGODA_CHECK(context != nullptr && context->err == 0, "the server is there");
  constexpr uint32_t kPipeline = 8;
  Measure("hiredis_get", blocks * block_bytes, [&] {
    uint32_t sent = 0;
    for (uint32_t got = 0; got < blocks; ++got) {
      for (; sent < std::min(blocks, got + kPipeline); ++sent) {
        const std::string name = StoredName("pagoda:", "", KeyOf(sent % keys));
        redisAppendCommand(context, "GET %b", name.data(), name.size());
      }
      void* reply = nullptr;
      PAGODA_CHECK(redisGetReply(context, &reply) == REDIS_OK, "there is a reply");
      const auto* const value = static_cast<redisReply*>(reply);
      PAGODA_CHECK(
          value->type == REDIS_REPLY_STRING && value->len == block_bytes + kStoredHeaderBytes,
          "the value is a block");
      std::memcpy(memory.data() + got % (kBatchBlocks * kBatches) * block_bytes,
                  value->str + kStoredHeaderBytes, block_bytes);
      freeReplyObject(reply);
    }
  });
  redisFree(context);
}
#endif

int Run(uint16_t port, uint64_t block_bytes, uint32_t blocks, uint32_t keys) {
  RedisOptions options;
  options.seeds = {{"127.0.0.1", port}};
  absl::StatusOr<std::unique_ptr<RedisStore>> store = RedisStore::Create(options);
  PAGODA_CHECK(store.ok(), "the store starts");
  // Shared memory, as pools are.
  const uint64_t bytes = kBatches * kBatchBlocks * block_bytes;
  void* const mapped =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  PAGODA_CHECK(mapped != MAP_FAILED, "there is memory");
  const absl::Span<std::byte> memory(static_cast<std::byte*>(mapped), bytes);
  for (uint64_t i = 0; i < bytes; i += 8) memory[i] = static_cast<std::byte>(i * 2654435761u >> 24);
  const auto block = [&](uint32_t batch, uint32_t i) {
    return memory.subspan((batch * kBatchBlocks + i) * block_bytes, block_bytes);
  };
  Stream stream;
  const auto put_all = [&] {
    stream.Run(blocks, [&](uint32_t first, uint32_t batch, Store::Done done) {
      std::vector<Store::Write> writes;
      for (uint32_t i = 0; i < kBatchBlocks; ++i) {
        writes.push_back({KeyOf((first + i) % keys), {block(batch, i)}});
      }
      (*store)->Put(std::move(writes), absl::Hours(1), kTimeout, std::move(done));
    });
  };
  const auto get_all = [&] {
    stream.Run(blocks, [&](uint32_t first, uint32_t batch, Store::Done done) {
      std::vector<Store::Read> reads;
      for (uint32_t i = 0; i < kBatchBlocks; ++i) {
        reads.push_back({KeyOf((first + i) % keys), {block(batch, i)}});
      }
      (*store)->Get(std::move(reads), kTimeout, std::move(done));
    });
  };
  put_all();  // Connects, and warms the server's memory.
  Measure("put", blocks * block_bytes, put_all);
  Measure("get", blocks * block_bytes, get_all);
#ifdef PAGODA_HAS_HIREDIS
  MeasureHiredis(port, block_bytes, blocks, keys, memory);
#endif
  return 0;
}

}  // namespace
}  // namespace pagoda::bench

// store_bench PORT BLOCK_BYTES BLOCKS KEYS
int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "store_bench PORT BLOCK_BYTES BLOCKS KEYS\n");
    return 2;
  }
  const auto number = [argv](int i) { return std::strtoull(argv[i], nullptr, 10); };
  // Whole batches.
  const uint64_t batch = pagoda::bench::kBatchBlocks;
  const auto blocks = static_cast<uint32_t>((number(3) + batch - 1) / batch * batch);
  return pagoda::bench::Run(static_cast<uint16_t>(number(1)), number(2), blocks,
                            static_cast<uint32_t>(number(4)));
}

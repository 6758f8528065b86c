#include "tests/bench/events/event_log_bench.h"

#include <vector>

#include "absl/time/time.h"
#include "events/event_log.h"
#include "manager/services/event_recorder.h"
#include "tests/bench/figure.h"

namespace pagoda::bench {
namespace {

constexpr int kBatch = 256;
constexpr int kBatches = 2000;
constexpr size_t kTokens = 16;
constexpr EventLog::Limits kLimits = {.max_events = 1 << 16};

// Nanoseconds per event of `record(recorder, number)`. Each event is a separate operation.
template <class Record>
double Measure(Record record) {
  EventRecorder recorder;
  EventLog log(kLimits);
  uint32_t number = 0;
  const auto run = [&] {
    return Seconds([&] {
      for (int batch = 0; batch < kBatches; ++batch) {
        for (int i = 0; i < kBatch; ++i) {
          recorder.BeginOperation(absl::UnixEpoch());
          record(recorder, ++number);
        }
        log.Append(recorder.Take());
      }
    });
  };
  return MedianSeconds(run) / (kBatches * kBatch) * 1e9;
}

}  // namespace

void PrintLogAppend() {
  // The least cost of any log of events on the heap: one allocation and one deallocation, in a
  // ring.
  const double heap = [] {
    std::vector<std::unique_ptr<std::vector<uint64_t>>> ring(kLimits.max_events);
    size_t next = 0;
    return MedianSeconds([&] {
             return Seconds([&] {
               for (int i = 0; i < kBatches * kBatch; ++i) {
                 ring[next] = std::make_unique<std::vector<uint64_t>>(2);
                 next = (next + 1) % ring.size();
               }
             });
           }) /
           (kBatches * kBatch) * 1e9;
  }();
  constexpr char kHeap[] = "a vector of two words on the heap, in a ring of as many";
  const NamespaceKey default_tenant;
  const std::vector<TokenId> tokens(kTokens, 7);
  Print({.id = "log_append_removed",
         .value = Measure([](EventRecorder& recorder, uint32_t number) {
           recorder.Removed(kFullAttention, RemovalReason::kEvicted,
                            {BlockId{number}, BlockHash{number}, number});
         }),
         .unit = "ns",
         .yardstick = kHeap,
         .yardstick_value = heap});
  Print({.id = "log_append_stored",
         .value = Measure([&](EventRecorder& recorder, uint32_t number) {
           recorder.Stored(
               kFullAttention, default_tenant, {BlockId{number}, BlockHash{number}, number},
               {.id = BlockId{number + 1}, .hash = BlockHash{number}, .token_count = kTokens},
               BlockKey{.tokens = tokens, .extras = {}});
         }),
         .unit = "ns",
         .yardstick = kHeap,
         .yardstick_value = heap});
}

}  // namespace pagoda::bench

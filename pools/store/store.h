// A store of blocks outside this process, by content: a Redis Cluster, or another daemon.
#ifndef PAGODA_POOLS_STORE_STORE_H_
#define PAGODA_POOLS_STORE_STORE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/metric.h"

namespace pagoda {

// Names a block's content. Blocks with equal keys have equal bytes.
struct StoreKey {
  std::array<std::byte, 32> layout = {};  // Identifies the cache and the layout of its slots.
  // The digest of the content (manager/restart/content_digest.h).
  std::array<std::byte, 32> digest = {};
  uint32_t window_size = 0;  // The attention window in tokens; 0 is full attention.
  friend bool operator==(const StoreKey&, const StoreKey&) = default;
};

// How an operation on one key ended. Everything but kOk is a miss.
enum class StoreOutcome : uint8_t {
  kOk,           // Read and verified; written; or it exists.
  kMissing,      // The store has no value under the key.
  kInvalid,      // The value is not this block: truncated, damaged, another block's, or forged.
  kRefused,      // The store answered with an error, for example OOM or NOAUTH.
  kUnreachable,  // No connection to the server that has the key.
  kTimedOut,     // The deadline passed.
  kOverloaded,   // Too many operations already wait.
  kCancelled,    // The store was stopped.
};
inline constexpr size_t kStoreOutcomes = 8;
// "ok", "missing", ...
const char* StoreOutcomeName(StoreOutcome outcome);

// Why a value was not the block.
enum class ValueFault : uint8_t {
  kNone,
  kForeign,    // Not a value of Pagoda, of another version, or of another layout.
  kSwapped,    // A value of another block.
  kTruncated,  // Another length than the block's.
  kDamaged,    // The checksum does not fit.
  kForged,     // The authentication code does not fit, or is absent.
};
inline constexpr size_t kValueFaults = 6;
const char* ValueFaultName(ValueFault fault);

// Counts since the store was made.
struct StoreStats {
  std::array<uint64_t, kStoreOutcomes> gets = {};  // By outcome. One key counts as one.
  std::array<uint64_t, kStoreOutcomes> puts = {};
  std::array<uint64_t, kStoreOutcomes> exists = {};
  std::array<uint64_t, kValueFaults> faults = {};  // The faults of gets with kInvalid.
  uint64_t bytes_read = 0;                         // Without headers.
  uint64_t bytes_written = 0;
  uint64_t redirections = 0;  // MOVED and ASK.
  uint64_t refused_servers = 0;
  uint64_t connects = 0;
  uint64_t connect_failures = 0;  // Also connections that gave no reply.
  uint64_t disconnects = 0;
  uint32_t nodes = 0;
  uint32_t connected = 0;
  size_t waiting = 0;
  std::string last_error;  // What failed last; empty if nothing did.
};

// The metrics of the daemon's store, without a label.
inline constexpr Metric<StoreStats> kStoreMetrics[] = {
    {[](const StoreStats& stats) { return stats.connected > 0 ? 1.0 : 0.0; }, "pagoda_store_up",
     "up", "1 if a connection to one of the store's servers is ready."},
    {&StoreStats::nodes, "pagoda_store_servers", "nodes", "Servers of the store that are known."},
    {&StoreStats::connected, "pagoda_store_connections", "connections",
     "Ready connections to the store."},
    {KindsOf<StoreStats, &StoreStats::gets, StoreOutcomeName>("outcome"),
     "pagoda_store_operations_total",
     "gets_total",
     "Operations on single keys of the store: get, put, exists. By outcome: ok; missing: no value; "
     "invalid: the value is not the block; refused: an error, for example OOM; unreachable: no "
     "connection; timed_out; overloaded: too many operations wait; cancelled.",
     {"operation", "get"}},
    {KindsOf<StoreStats, &StoreStats::puts, StoreOutcomeName>("outcome"),
     "pagoda_store_operations_total",
     "puts_total",
     "",
     {"operation", "put"}},
    {KindsOf<StoreStats, &StoreStats::exists, StoreOutcomeName>("outcome"),
     "pagoda_store_operations_total",
     "exists_total",
     "",
     {"operation", "exists"}},
    {KindsOf<StoreStats, &StoreStats::faults, ValueFaultName, 1>("fault"),
     "pagoda_store_invalid_values_total", "faults_total",
     "Values that were not the block. foreign: not of Pagoda, or of another version or layout; "
     "swapped: another block's; truncated; damaged: the checksum is wrong; forged: the "
     "authentication code is wrong."},
    {&StoreStats::bytes_read,
     "pagoda_store_bytes_total",
     "read_bytes_total",
     "Bytes of blocks by direction: read (and verified), write (and confirmed).",
     {"direction", "read"}},
    {&StoreStats::bytes_written,
     "pagoda_store_bytes_total",
     "written_bytes_total",
     "",
     {"direction", "write"}},
    {&StoreStats::waiting, "pagoda_store_waiting_operations", "waiting",
     "Operations on the store that have not ended."},
    {&StoreStats::redirections, "pagoda_store_redirections_total", "redirections_total",
     "Answers that named another server of the cluster."},
    {&StoreStats::refused_servers, "pagoda_store_refused_servers_total", "",
     "Connections that were not begun, because store.allowed_networks does not allow the server, "
     "or it would get the password without TLS."},
    {&StoreStats::connects, "pagoda_store_connects_total", "connects_total",
     "Connections that became ready."},
    {&StoreStats::connect_failures, "pagoda_store_connect_failures_total", "connect_failures_total",
     "Connections that did not become ready."},
    {&StoreStats::disconnects, "pagoda_store_disconnects_total", "disconnects_total",
     "Ready connections that ended."},
};
static_assert(EachFieldHasARow<&StoreStats::last_error>(kStoreMetrics), "a field has no row");

// The metrics of another daemon. Label: address. Its status is that of a store, and kStoreMetrics
// has a row for each field.
inline constexpr Metric<StoreStats> kSourceMetrics[] = {
    {[](const StoreStats& stats) { return stats.connected > 0 ? 1.0 : 0.0; }, "pagoda_source_up",
     "", "1 if a connection to the other daemon is ready."},
    {KindsOf<StoreStats, &StoreStats::gets, StoreOutcomeName>("outcome"),
     "pagoda_source_gets_total", "",
     "Blocks asked of the other daemon, by outcome, as of the store."},
    {&StoreStats::bytes_read, "pagoda_source_bytes_total", "",
     "Bytes of the blocks that the other daemon has brought."},
    {&StoreStats::connect_failures, "pagoda_source_connect_failures_total", "",
     "Connections to the other daemon that did not become ready."},
};

// A place that keeps blocks by content. Nobody here owns what it holds: a value that another
// machine removes is a miss. Thread-safe.
//
// 1. Each batch is reported exactly once, at its deadline at the latest (plus scheduling). The
//    report has one outcome per key, in the order of the batch. Keys that did not end by then are
//    kTimedOut.
// 2. From the beginning of the report on, the store neither reads nor writes the batch's memory.
// 3. kOk of a get means that the memory holds the bytes that a put under this key wrote, whole and
//    verified. After any other outcome the memory is unspecified.
// 4. No failure of a store raises an error, stops the process or blocks a caller.
class Store {
 public:
  // Runs on a thread of the store, or within the call if the batch is empty, too large for what
  // already waits, or the store is stopped. It must not block, and must not call Stop.
  using Done = std::function<void(const std::vector<StoreOutcome>&)>;

  // The block's bytes are the concatenated pieces, which the caller owns until `done`.
  struct Read {
    StoreKey key;
    std::vector<absl::Span<std::byte>> pieces;
  };
  struct Write {
    StoreKey key;
    std::vector<absl::Span<const std::byte>> pieces;
  };

  virtual ~Store() = default;
  virtual void Get(std::vector<Read> batch, absl::Duration timeout, Done done) = 0;
  // Each value lives for `time_to_live` at most: 1 ms to ten years; other times are cut to these.
  // The store can drop it earlier.
  virtual void Put(std::vector<Write> batch, absl::Duration time_to_live, absl::Duration timeout,
                   Done done) = 0;
  virtual void Exists(std::vector<StoreKey> batch, absl::Duration timeout, Done done) = 0;
  // Ends everything as kCancelled. When it has returned, no report runs, and later batches are
  // reported within the call. May be called more than once.
  virtual void Stop() = 0;
  virtual StoreStats stats() const = 0;
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_STORE_STORE_H_

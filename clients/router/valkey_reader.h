// Answers from the records that sinks keep in Redis or Valkey.
#ifndef PAGODA_CLIENTS_ROUTER_VALKEY_READER_H_
#define PAGODA_CLIENTS_ROUTER_VALKEY_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "clients/router/chunk_hashes.h"
#include "clients/router/store_layout.h"
#include "clients/router/store_link.h"

namespace pagoda {

// Finds the nodes with the longest prefix of a prompt, as PrefixRouter does, by asking the server
// (store_layout.h). Thread-safe: one question at a time. Cost: two round trips and the transfer of
// the buckets of the prompt's chunks, some 2 KB each.
class ValkeyReader {
 public:
  struct Options {
    StoreLink::Options store;
    std::string prefix = "pagoda:router";
  };
  explicit ValkeyReader(const Options& options) : options_(options) {}

  struct Match {
    std::string node;
    std::string peer_address;
    uint32_t tokens = 0;         // Of the prompt, from its start. At most its reusable tokens.
    Tier tier = Tier::kPrimary;  // Where the last of them lie.
    friend bool operator==(const Match&, const Match&) = default;
  };
  // Longest prefix first, then the nearest tier, then by name; at most `most`. Blocks. Errors:
  // UNAVAILABLE and DEADLINE_EXCEEDED (the next call connects again), NOT_FOUND (no sink has
  // written there yet), FAILED_PRECONDITION (the server refuses, or its values make no sense).
  absl::StatusOr<std::vector<Match>> Find(const RoutedPrompt& prompt, size_t most)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::StatusOr<std::vector<resp::Value>> Run(const std::vector<StoreLink::Command>& commands)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ReadMeta() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  absl::Mutex mutex_;
  std::unique_ptr<StoreLink> link_ ABSL_GUARDED_BY(mutex_);
  std::optional<router_store::Meta> meta_ ABSL_GUARDED_BY(mutex_);  // Of this connection.
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_ROUTER_VALKEY_READER_H_

// A server of a cluster as its client sees it.
#ifndef PAGODA_POOLS_STORE_REDIS_NODE_H_
#define PAGODA_POOLS_STORE_REDIS_NODE_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "pools/store/cluster_map.h"
#include "pools/store/redis_call.h"
#include "pools/store/redis_connection.h"
#include "pools/store/redis_socket.h"

namespace pagoda {

struct RedisNode;

// A connection, and what EventPoll knows of it.
struct RedisLink {
  RedisNode* node = nullptr;
  std::unique_ptr<RedisConnection> connection;
  uint32_t events = 0;  // Registered with EventPoll; 0: not registered.
  bool was_ready = false;
  bool has_replied = false;  // To a command that was not for its set-up.
  bool is_stalled = false;   // It was closed because the server did not answer.
};

struct RedisNode {
  RedisAddress address;
  std::deque<std::unique_ptr<RedisCall>> waiting;  // For room on a connection.
  std::deque<std::unique_ptr<RedisCall>> puts;     // The same; they come after the others.
  std::vector<std::unique_ptr<RedisLink>> links;
  std::vector<SocketAddress> addresses;  // Empty: to be looked up.
  bool is_resolving = false;
  absl::Time resolve_deadline = absl::InfiniteFuture();
  int failures = 0;  // Since a connection was ready.
  absl::Time retry_at = absl::InfinitePast();
  bool is_in_map = false;
  bool is_seed = false;
  bool is_touched = false;  // It is in the list of nodes that Tick visits.

  bool is_idle() const { return waiting.empty() && puts.empty(); }
  bool has_ready_link() const {
    return std::any_of(links.begin(), links.end(),
                       [](const auto& link) { return link->connection->is_ready(); });
  }
  // Whether calls to it end at once: the last connect failed, and no connection is ready.
  bool is_failing() const { return failures > 0 && !has_ready_link(); }
  bool is_connecting() const {
    return is_resolving || std::any_of(links.begin(), links.end(),
                                       [](const auto& link) { return !link->was_ready; });
  }
  bool has_calls() const {
    return !is_idle() || std::any_of(links.begin(), links.end(), [](const auto& link) {
      return link->connection->in_flight() > 0;
    });
  }
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_STORE_REDIS_NODE_H_

// The servers of a Redis Cluster, or one plain server: connections, the map, redirections.
#ifndef PAGODA_POOLS_STORE_REDIS_CLUSTER_H_
#define PAGODA_POOLS_STORE_REDIS_CLUSTER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/event_poll.h"
#include "pools/store/address_resolver.h"
#include "pools/store/cluster_map.h"
#include "pools/store/redis_call.h"
#include "pools/store/redis_connection.h"
#include "pools/store/redis_node.h"
#include "pools/store/redis_options.h"
#include "pools/store/redis_socket.h"
#include "pools/store/server_networks.h"
#include "pools/store/store.h"

namespace pagoda {

// Brings each call to the server that has its key. Only for the thread of its store. Nothing here
// blocks. All calls of a round see the same time, which Handle, Tick and Route get.
//
// 1. Each call that Route takes is given back exactly once, by Ends, unless its batch ends before.
// 2. A server that does not answer costs calls their time for at most `stall_timeout`. After that
//    they are given back at once, until it answers again.
class RedisCluster : private RedisConnection::Owner {
 public:
  // Takes the calls that have ended. Called within Route, Handle and Tick.
  class Ends {
   public:
    virtual ~Ends() = default;
    // The call has a reply, which is not a redirection.
    virtual void OnReply(std::unique_ptr<RedisCall> call) = 0;
    virtual void OnUnreachable(std::unique_ptr<RedisCall> call) = 0;
  };

  // `tls` may be null. `poll`: connections are registered there, with a source that Handle takes.
  // `wake` makes the thread call Tick; it is called on any thread. `stats` gets connects,
  // redirections and errors.
  RedisCluster(const RedisOptions& options, TlsContext* tls, EventPoll* poll,
               std::function<void()> wake, StoreStats& stats, Ends& ends);
  ~RedisCluster() override;

  // REQUIRES: the call has a batch and a command to a key.
  void Route(std::unique_ptr<RedisCall> call, absl::Time now);
  // An event of EventPoll.
  void Handle(void* link, absl::Time now);
  // Does what is due, and sends what waits. Call it after each round of Handle and Route.
  void Tick(absl::Time now);
  // When Tick is to be called next, if nothing happens before.
  absl::Time next_tick() const { return next_tick_; }

  // The call's batch has ended: from now on nothing touches the call's memory. Can destroy the
  // call. REQUIRES: its batch is null, and it was routed here and not given back.
  void Abandon(RedisCall& call);

 private:
  struct Shard {
    RedisNode* primary = nullptr;
    std::vector<RedisNode*> replicas;
    size_t next = 0;  // The replica that is asked next.
  };

  void OnReady(RedisConnection& connection) override;
  void OnReply(RedisConnection& connection, std::unique_ptr<RedisCall> call) override;
  void OnClose(RedisConnection& connection) override;

  RedisNode& NodeAt(const RedisAddress& address);
  RedisNode* Choose(const RedisCall& call);
  void Enqueue(RedisNode& node, std::unique_ptr<RedisCall> call);
  void EndUnreachable(std::unique_ptr<RedisCall> call);
  void Touch(RedisNode& node);

  // Connections of a server.
  void Connect(RedisNode& node);
  static RedisLink* LinkOf(RedisNode& node, const RedisConnection& connection);
  void OpenLink(RedisNode& node);
  bool IsSeed(const RedisAddress& address) const;
  void LookUpSeeds();
  void Resolved(const RedisAddress& address, AddressResolver::Addresses addresses);
  void Fail(RedisNode& node, const absl::Status& why);
  void EndWaiting(RedisNode& node, const absl::Status& why);
  void EndLink(std::unique_ptr<RedisLink> link);
  void EndClosedLinks(RedisNode& node);
  void Pump(RedisNode& node);
  void SendWaiting(RedisNode& node);
  void Watch(RedisLink& link);
  void Scan();
  void Purge();

  // The map.
  void WantMap();
  void AskForMap();
  void MapArrived(RedisConnection& connection, const RedisCall& call);
  void MapFailed(absl::string_view why);
  void ApplyMap(const ClusterMap& map);
  void ApplyPlain(RedisNode& node);
  void MapIsHere();
  void RemoveNodes();
  void Redirect(std::unique_ptr<RedisCall> call, const Redirection& redirection);
  void Complain(absl::string_view what);
  absl::Duration Backoff(int failures);

  const RedisOptions& options_;
  TlsContext* const tls_;
  EventPoll& poll_;
  StoreStats& stats_;
  Ends& ends_;
  AddressResolver resolver_;
  ServerNetworks networks_;
  absl::Time seeds_due_ = absl::InfinitePast();  // When the seeds may be looked up again.
  absl::Time now_ = absl::InfinitePast();
  absl::Time next_tick_ = absl::InfinitePast();
  absl::Time next_scan_ = absl::InfinitePast();
  uint64_t random_;

  std::map<RedisAddress, std::unique_ptr<RedisNode>> nodes_;
  std::vector<RedisNode*> touched_;  // Nodes that Tick visits.
  size_t abandoned_ = 0;             // Waiting calls without a batch.

  std::vector<Shard> shards_;
  std::vector<uint16_t> shard_of_slot_;      // kNoShard: only primary_of_slot_ is known.
  std::vector<RedisNode*> primary_of_slot_;  // Null: no server has the slot.
  bool has_map_ = false;
  bool are_replicas_refused_ = false;
  bool has_old_nodes_ = false;                       // Nodes that the map no longer names exist.
  std::deque<std::unique_ptr<RedisCall>> unrouted_;  // Wait for the first map.
  int map_failures_ = 0;                             // Since the last map.
  size_t next_seed_ = 0;
  absl::Time map_due_ = absl::InfinitePast();
  bool is_map_asked_ = false;
  uint32_t map_number_ = 0;                           // The number of the last map request.
  absl::Time map_deadline_ = absl::InfiniteFuture();  // The deadline of the map request under way.
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_STORE_REDIS_CLUSTER_H_

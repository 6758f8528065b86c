// A store in a Redis Cluster (also Valkey), in one plain server, or in another daemon.
#ifndef PAGODA_POOLS_STORE_REDIS_STORE_H_
#define PAGODA_POOLS_STORE_REDIS_STORE_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "pools/store/redis_options.h"
#include "pools/store/store.h"

namespace pagoda {

// A client of the Redis Cluster protocol. One thread does everything: it reads values from the
// socket straight into the blocks' memory, and writes them from there. It follows redirections and
// failovers, and connects again by itself. Thread-safe.
class RedisStore : public Store {
 public:
  // Connects in the background: servers that are down are no error. Errors: InvalidArgument (no
  // server, a number out of range, certificates), ResourceExhausted (no thread or descriptors).
  static absl::StatusOr<std::unique_ptr<RedisStore>> Create(RedisOptions options);
  // Calls Stop.
  ~RedisStore() override;

  void Get(std::vector<Read> batch, absl::Duration timeout, Done done) override;
  void Put(std::vector<Write> batch, absl::Duration time_to_live, absl::Duration timeout,
           Done done) override;
  void Exists(std::vector<StoreKey> batch, absl::Duration timeout, Done done) override;
  void Stop() override;
  StoreStats stats() const override;

 private:
  class Loop;

  explicit RedisStore(std::unique_ptr<Loop> loop);

  const std::unique_ptr<Loop> loop_;
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_STORE_REDIS_STORE_H_

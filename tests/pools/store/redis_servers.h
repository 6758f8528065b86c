// Real servers, Redis or Valkey, that a test starts and ends.
#ifndef PAGODA_TESTS_POOLS_STORE_REDIS_SERVERS_H_
#define PAGODA_TESTS_POOLS_STORE_REDIS_SERVERS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "pools/store/redis_options.h"
#include "tests/clients/fixtures/temp_directory.h"

namespace pagoda {

// A kind of server on this machine.
struct ServerKind {
  std::string name;    // "redis" or "valkey".
  std::string server;  // The programs.
  std::string cli;
  friend void PrintTo(const ServerKind& kind, std::ostream* out) { *out << kind.name; }
};
// The kinds that are installed, or that the environment variables PAGODA_VALKEY_SERVER and
// PAGODA_VALKEY_CLI name.
std::vector<ServerKind> InstalledServers();

// A server in its own directory, without persistence.
class RedisServer {
 public:
  // `arguments`: further options of the server. Waits until it answers; is_up() says whether it
  // did. If another process has taken its port meanwhile, it takes another one.
  RedisServer(const ServerKind& kind, std::vector<std::string> arguments);
  ~RedisServer() { Kill(); }
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  bool is_up() const { return is_up_; }
  uint16_t port() const { return port_; }
  RedisAddress address() const { return {"127.0.0.1", port_}; }
  std::string directory() const { return directory_.path(); }
  void Kill();
  // Starts it again on the same port, empty.
  void Start();
  // Changes an option, also for later starts. False if the server refuses it.
  bool Set(const std::string& option, const std::string& value);
  void Signal(int signal) const;

 private:
  const ServerKind kind_;
  std::vector<std::string> arguments_;
  const TempDirectory directory_;
  uint16_t port_;
  pid_t pid_ = -1;
  bool is_up_ = false;
};

// Three primaries, each with a replica, on this machine.
class TestCluster {
 public:
  explicit TestCluster(const ServerKind& kind, std::vector<std::string> arguments = {});

  bool is_up() const { return is_up_; }
  // Where the keys are: the index of the server that is the primary of a slot now; -1: none.
  int PrimaryOf(uint16_t slot) const;
  RedisServer& server(size_t index) { return *servers_[index]; }
  size_t size() const { return servers_.size(); }
  std::vector<RedisAddress> seeds() const;
  // Moves a slot with its keys to another primary, step by step. `in_between` runs while both
  // servers have a part of the keys.
  void MoveSlot(uint16_t slot, const std::function<void()>& in_between);

 private:
  std::vector<std::unique_ptr<RedisServer>> servers_;
  bool is_up_ = false;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_POOLS_STORE_REDIS_SERVERS_H_

// A server of RESP whose answers a test writes.
#ifndef PAGODA_TESTS_POOLS_STORE_SCRIPTED_SERVER_H_
#define PAGODA_TESTS_POOLS_STORE_SCRIPTED_SERVER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/file_descriptor.h"
#include "pools/store/cluster_map.h"

namespace pagoda {

// A connection to the server, for the script.
class ScriptedPeer {
 public:
  ScriptedPeer(int fd, uint16_t port) : fd_(fd), port_(port) {}

  uint16_t port() const { return port_; }  // The server's.

  // Returns false if the client has gone. Takes a copy: the test may change what it sends next.
  bool Send(std::string bytes) const;
  // A byte at a time, with pauses, until the client goes or all is sent.
  void SendSlowly(std::string bytes, int pause_ms, const std::atomic<bool>& stop) const;
  // Resets the connection: the client sees ECONNRESET.
  void Reset() const;

 private:
  const int fd_;
  const uint16_t port_;
};

class ScriptedServer {
 public:
  // Answers a command. False: the connection is closed. Runs on a thread of the connection.
  using Script = std::function<bool(const std::vector<std::string>& command, ScriptedPeer& peer)>;

  // The reply to PING, CLUSTER, READONLY or AUTH. nullopt: as a plain server without a password.
  using SetUp = std::function<std::optional<std::string>(const std::string& command)>;

  // `port`: 0 takes any.
  explicit ScriptedServer(Script script, uint16_t port = 0, SetUp set_up = nullptr);
  ~ScriptedServer();

  RedisAddress address() const { return {"127.0.0.1", port_}; }
  const std::atomic<bool>& stopping() const { return stopping_; }
  int connections() const { return connections_; }  // Accepted so far.

 private:
  void Accept();
  void Serve(int fd);

  const Script script_;
  const SetUp set_up_;
  FileDescriptor listener_;
  uint16_t port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> connections_ = 0;
  absl::Mutex mutex_;
  std::vector<int> open_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
  std::thread acceptor_;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_POOLS_STORE_SCRIPTED_SERVER_H_

// The door to the pools' memory for other processes: proto/pagoda/v1/mapping.proto.
#ifndef PAGODA_SERVER_MEMORY_MAP_SOCKET_H_
#define PAGODA_SERVER_MEMORY_MAP_SOCKET_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "manager/ids.h"
#include "pools/file_descriptor.h"
#include "server/memory/peer_process.h"
#include "server/memory/pool_export.h"

namespace pagoda::server {

// A Unix socket that hands out descriptors of the pools, on a thread of its own that never waits
// for a peer: one that is silent, or does not read its answer, keeps nobody else from theirs.
class MapSocket {
 public:
  // At the same time. One more takes the place of the one that has been idle for longest. A quarter
  // of the descriptors that a process has by default.
  static constexpr size_t kMaxConnections = 256;
  static constexpr size_t kMaxRequestBytes = 1024;

  using ExportPtr = std::shared_ptr<const PoolExport>;
  // Who may map, and what: the pools of the session's cache. Called on the socket's thread, before
  // a descriptor is sent.
  struct Gate {
    std::function<absl::StatusOr<ExportPtr>(SessionRef)> admit_reader;
    std::function<absl::StatusOr<ExportPtr>(SessionRef, PeerProcess)> admit_writer;
  };

  // Listens at `path`, mode 0660; a socket file there that nobody listens on is replaced.
  // Errors: INVALID_ARGUMENT where the path cannot be listened on.
  static absl::StatusOr<std::unique_ptr<MapSocket>> Listen(std::string path, Gate gate);
  // Hangs up, and removes the socket's file.
  ~MapSocket();
  MapSocket(const MapSocket&) = delete;
  MapSocket& operator=(const MapSocket&) = delete;

  const std::string& path() const { return path_; }

 private:
  struct Connection {
    FileDescriptor fd;
    uint64_t last_use;  // In the order of uses.
  };
  // A request as it came.
  struct Packet;
  enum class Next { kGoOn, kHangUp };

  MapSocket(std::string path, Gate gate) : path_(std::move(path)), gate_(std::move(gate)) {}
  absl::Status Bind();
  void Run();
  // Lets one in. False where this process may not open another file, and nobody can be sent away.
  bool Accept();
  void HangUpOnTheIdlest();
  // Takes one packet, and answers it.
  Next Serve(const Connection& connection);
  // What a peer is sent.
  struct Grant {
    ExportPtr pool_export;
    MemoryAccess access;
  };
  // Errors where the pools are not to be had.
  absl::StatusOr<Grant> Decide(const Packet& packet, int connection);
  Next Answer(int connection, const absl::StatusOr<Grant>& decision);

  const std::string path_;
  const Gate gate_;
  FileDescriptor listener_;
  FileDescriptor stop_;  // An eventfd.

  // The thread's own.
  std::vector<Connection> connections_;
  uint64_t uses_ = 0;
  std::thread thread_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_MEMORY_MAP_SOCKET_H_

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
#include "absl/types/span.h"
#include "manager/ids.h"
#include "pools/file_descriptor.h"
#include "pools/pool.h"
#include "server/memory/peer_process.h"

namespace pagoda::server {

// A Unix socket that hands out descriptors of the pools, on a thread of its own that never waits
// for a peer: one that is silent, or does not read its answer, keeps nobody else from theirs.
class MapSocket {
 public:
  // At the same time. One more takes the place of the one that has been idle for longest. A quarter
  // of the descriptors that a process has by default.
  static constexpr size_t kMaxConnections = 256;
  static constexpr size_t kMaxRequestBytes = 1024;
  // What one packet carries; the kernel's bound.
  static constexpr size_t kMaxSegments = 253;

  // Who may map. Called on the socket's thread, before a descriptor is sent.
  struct Gate {
    std::function<absl::Status(SessionRef)> admit_reader;
    std::function<absl::Status(SessionRef, PeerProcess)> admit_writer;
  };

  // Listens at `path`, mode 0660; a socket file there that nobody listens on is replaced. `pools`
  // is not needed afterwards.
  // Errors: INVALID_ARGUMENT where the path cannot be listened on, or the pools have more than
  // kMaxSegments segments; those of PoolSet::OpenDescriptors.
  static absl::StatusOr<std::unique_ptr<MapSocket>> Listen(std::string path, const PoolSet& pools,
                                                           Gate gate);
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
  // What is sent with the pools; an error where they are not to be had.
  absl::StatusOr<absl::Span<const FileDescriptor>> Decide(const Packet& packet, int connection);
  Next Answer(int connection, const absl::StatusOr<absl::Span<const FileDescriptor>>& decision);

  const std::string path_;
  const Gate gate_;
  std::string pools_answer_;  // A MapPoolsResponse with the pools.
  std::vector<FileDescriptor> for_readers_;
  std::vector<FileDescriptor> for_writers_;
  FileDescriptor listener_;
  FileDescriptor stop_;  // An eventfd.

  // The thread's own.
  std::vector<Connection> connections_;
  uint64_t uses_ = 0;
  std::thread thread_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_MEMORY_MAP_SOCKET_H_

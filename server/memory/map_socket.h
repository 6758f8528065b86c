// The socket through which other processes map the pools' memory: proto/pagoda/v1/mapping.proto.
#ifndef PAGODA_SERVER_MEMORY_MAP_SOCKET_H_
#define PAGODA_SERVER_MEMORY_MAP_SOCKET_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/event_poll.h"
#include "base/file_descriptor.h"
#include "base/thread.h"
#include "manager/words/ids.h"
#include "server/memory/peer_process.h"
#include "server/memory/pool_export.h"

namespace pagoda::server {

// A Unix socket that hands out descriptors of the pools and of rings. It runs on one thread, which
// never waits for a peer: a peer that is silent or does not read its answer does not delay other
// peers.
class MapSocket {
 public:
  // Simultaneous connections. When the limit is reached, a new connection replaces the one that has
  // been idle for longest. The limit is a quarter of a process's default descriptor limit.
  static constexpr size_t kMaxConnections = 256;
  static constexpr size_t kMaxRequestBytes = 1024;

  using ExportPtr = std::shared_ptr<const PoolExport>;
  // A new pair of rings: the bytes of each ring, and the client's descriptors, as
  // proto/pagoda/v1/mapping.proto says. They are closed when they are sent.
  struct Rings {
    uint32_t bytes;
    std::array<FileDescriptor, 2> descriptors;
  };
  // Decides whether a process can map, and returns the pools of the session's cache, or new rings
  // of the wanted size. Called on the socket's thread, before a descriptor is sent.
  struct Gate {
    std::function<absl::StatusOr<ExportPtr>(SessionRef)> admit_reader;
    std::function<absl::StatusOr<ExportPtr>(SessionRef, PeerProcess)> admit_writer;
    std::function<absl::StatusOr<Rings>(SessionRef, uint32_t bytes)> open_rings;
  };

  // Listens at `path`, mode 0660. Replaces a socket file on which no process listens. Errors:
  // INVALID_ARGUMENT if the path cannot be listened on; those of EventPoll::Create.
  static absl::StatusOr<std::unique_ptr<MapSocket>> Listen(std::string path, Gate gate);
  // Hangs up, and removes the socket's file.
  ~MapSocket();
  MapSocket(const MapSocket&) = delete;
  MapSocket& operator=(const MapSocket&) = delete;

  const std::string& path() const { return path_; }

 private:
  struct Connection {
    FileDescriptor fd;
    uint64_t last_use;  // Counts uses: higher is more recent.
  };
  // A request as received.
  struct Packet;
  enum class Next { kGoOn, kHangUp };

  MapSocket(std::string path, Gate gate, EventPoll poll)
      : path_(std::move(path)), gate_(std::move(gate)), poll_(std::move(poll)) {}
  absl::Status Bind();
  void Run();
  // Accepts one connection. False if this process cannot open another file and has no connection to
  // close instead.
  bool Accept();
  void HangUp(int fd);
  void HangUpOnTheIdlest();
  // Takes one packet, and answers it.
  Next Serve(const Connection& connection);
  // A positive answer: pools or rings.
  struct Grant {
    ExportPtr pool_export;  // Null: rings.
    MemoryAccess access = MemoryAccess::kRead;
    std::optional<Rings> rings;

    std::string answer() const;
    absl::Span<const FileDescriptor> descriptors() const;
  };
  // Errors if the request is invalid or the gate refuses it.
  absl::StatusOr<Grant> Decide(const Packet& packet, int connection);
  absl::StatusOr<Grant> DecideWriter(SessionRef session, const Packet& packet, int connection);
  Next Answer(int connection, const absl::StatusOr<Grant>& decision);

  const std::string path_;
  const Gate gate_;
  FileDescriptor listener_;
  EventPoll poll_;  // Its sources: listener_ and the connections.

  // Used by the thread alone.
  std::map<int, Connection> connections_;  // By descriptor.
  uint64_t uses_ = 0;
  Thread thread_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_MEMORY_MAP_SOCKET_H_

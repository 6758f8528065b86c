// A proxy between a client and a daemon, both at Unix sockets, that cuts connections.
#ifndef PAGODA_TESTS_CLIENTS_CUTTING_PROXY_H_
#define PAGODA_TESTS_CLIENTS_CUTTING_PROXY_H_

#include <atomic>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace pagoda {

// Forwards the received pieces in both directions. While it cuts, it drops random pieces and ends
// their connections. A dropped piece is a request that the daemon never sees, an answer that the
// client never sees, or a part of one. Thread-safe.
class CuttingProxy {
 public:
  // Listens at `path`, connects to `target`.
  CuttingProxy(const std::string& path, const std::string& target);
  // Ends every connection.
  ~CuttingProxy();

  // On average one piece in `pieces` is lost from now on; 0: none.
  void LoseOneIn(uint32_t pieces) { lose_one_in_ = pieces; }
  // Connections that lost a piece so far.
  int cuts() const { return cuts_; }

 private:
  void Accept();
  void Forward(int from, int to);
  bool Loses() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string target_;
  const int listener_;
  std::atomic<uint32_t> lose_one_in_ = 0;
  std::atomic<int> cuts_ = 0;
  absl::Mutex mutex_;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_){7};
  std::vector<int> ends_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
  std::thread acceptor_;  // Last: it uses the others.
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_CLIENTS_CUTTING_PROXY_H_

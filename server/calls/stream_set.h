#ifndef PAGODA_SERVER_CALLS_STREAM_SET_H_
#define PAGODA_SERVER_CALLS_STREAM_SET_H_

#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace pagoda::server {

// The open streams of one kind, for access from other threads. Thread-safe.
template <class Stream>
class StreamSet {
 public:
  // This set, iterations over All(), and the stream's own call share ownership.
  using StreamPtr = std::shared_ptr<Stream>;

  void Add(StreamPtr stream) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    const Stream* key = stream.get();
    streams_.emplace(key, std::move(stream));
  }
  void Remove(const Stream* stream) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    streams_.erase(stream);
  }

  std::vector<StreamPtr> All() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    std::vector<StreamPtr> all;
    all.reserve(streams_.size());
    for (const auto& [key, stream] : streams_) all.push_back(stream);
    return all;
  }
  size_t size() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return streams_.size();
  }

 private:
  mutable absl::Mutex mutex_;  // No other lock is taken under it.
  std::map<const Stream*, StreamPtr> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CALLS_STREAM_SET_H_

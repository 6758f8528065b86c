// Answers that requests share for a short time, so that many requests cost as much as a few.
#ifndef PAGODA_SERVER_HTTP_SHARED_ANSWERS_H_
#define PAGODA_SERVER_HTTP_SHARED_ANSWERS_H_

#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace pagoda::server {

// Thread-safe.
//
// 1. Requests for the same answer wait for the one that makes it. Other answers do not wait.
// 2. There are at most kMostAnswers. The least recently requested one is dropped first. Errors are
//    not kept, so requests that fail displace nothing for longer than they run.
class SharedAnswers {
 public:
  static constexpr size_t kMostAnswers = 256;

  // An answer is made again when it is older than `interval`.
  explicit SharedAnswers(absl::Duration interval) : interval_(interval) {}

  // `make` makes the answer that `key` names.
  absl::StatusOr<std::string> Get(const std::string& key,
                                  absl::FunctionRef<absl::StatusOr<std::string>()> make)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Answer {
    absl::Mutex mutex;  // Held while the answer is made. Acquired before mutex_.
    std::string text ABSL_GUARDED_BY(mutex);
    absl::Time made ABSL_GUARDED_BY(mutex) = absl::InfinitePast();
  };
  struct Entry {
    std::shared_ptr<Answer> answer;  // Also owned by the requests that read it.
    absl::Time requested;
  };

  std::shared_ptr<Answer> Find(const std::string& key) ABSL_LOCKS_EXCLUDED(mutex_);

  const absl::Duration interval_;
  absl::Mutex mutex_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_SHARED_ANSWERS_H_

#include "server/http/body_memory.h"

#include <malloc.h>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda::server {
namespace {

// The allocator keeps what smaller requests return, and the next ones use it again.
constexpr size_t kLargeBytes = size_t{8} << 20;

}  // namespace

absl::Status BodyMemory::Share::Add(size_t bytes) {
  absl::Status status = memory_->Take(tenant_, bytes, bytes_);
  if (status.ok()) bytes_ += bytes;
  return status;
}

absl::Status BodyMemory::Take(TenantId tenant, size_t bytes, size_t before) {
  if (bytes > most_of_one_ - before) {
    return MakeError(Reason::kMessageTooLarge,
                     absl::StrCat("the request and its JSON values take more than ", most_of_one_,
                                  " bytes of memory"));
  }
  absl::MutexLock lock(&mutex_);
  if (!count_.Add(tenant.value(), bytes)) {
    return MakeError(
        Reason::kTooManyCalls,
        absl::StrCat("the HTTP requests of this tenant take ", count_.of(tenant.value()),
                     " bytes of memory, which is its limit now; try again later"));
  }
  if (before < kLargeBytes && before + bytes >= kLargeBytes) ++large_;
  return absl::OkStatus();
}

void BodyMemory::GiveBack(TenantId tenant, size_t bytes) {
  if (bytes == 0) return;
  absl::MutexLock lock(&mutex_);
  count_.Remove(tenant.value(), bytes);
  if (bytes < kLargeBytes) return;
  --large_;
  is_trim_due_ = true;
}

bool BodyMemory::Trim(absl::Time now) {
  {
    absl::MutexLock lock(&mutex_);
    if (!is_trim_due_ || large_ > 0 || now < next_trim_) return false;
    is_trim_due_ = false;
    next_trim_ = now + kTrimInterval;
  }
  malloc_trim(0);
  return true;
}

}  // namespace pagoda::server

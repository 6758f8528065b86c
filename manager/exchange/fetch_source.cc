#include "manager/exchange/fetch_source.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda {
namespace {

// The weight of the newest fetch in the measured rate.
constexpr double kRateWeight = 0.2;

}  // namespace

void FetchSource::Note(uint64_t bytes, absl::Duration took) {
  const double rate = static_cast<double>(bytes) / std::max(absl::ToDoubleSeconds(took), 1e-6);
  absl::MutexLock lock(&mutex_);
  rate_ = std::max(rate_ > 0 ? rate_ + kRateWeight * (rate - rate_) : rate, 1.0);
}

double FetchSource::bytes_per_second() const {
  absl::MutexLock lock(&mutex_);
  return rate_;
}

bool FetchSource::IsSlower(uint64_t bytes, absl::Duration otherwise, double assumed,
                           absl::Duration probe_interval, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  const double rate = rate_ > 0 ? rate_ : assumed;
  if (static_cast<double>(bytes) / rate <= absl::ToDoubleSeconds(otherwise)) return false;
  slow_since_ = std::min(slow_since_, now);
  if (now < slow_since_ + probe_interval) return true;
  slow_since_ = now;
  return false;
}

absl::Status CheckReaders(const FetchSource& source, const StoredPrompt& prompt) {
  if (source.is_trusted() || prompt.tenant.empty() || prompt.name_space.tenant == prompt.tenant) {
    return absl::OkStatus();
  }
  return MakeError(
      Reason::kPermissionDenied,
      absl::StrCat("the tenant '", prompt.tenant,
                   "' shares its prefixes, so other tenants would read what the source answers: "
                   "set store.secret_file on both daemons"));
}

}  // namespace pagoda

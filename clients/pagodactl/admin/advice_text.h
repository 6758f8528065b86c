// What more memory would bring to a cache, as sentences and as a table.
#ifndef PAGODA_CLIENTS_PAGODACTL_ADMIN_ADVICE_TEXT_H_
#define PAGODA_CLIENTS_PAGODACTL_ADMIN_ADVICE_TEXT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pagoda/v1/admin.pb.h"

namespace pagoda {

// Another size of a cache that somebody asks about.
struct AdviceQuestion {
  std::string change;  // "with 2x the host memory": the beginning of a sentence.
  double factor = 1;   // The blocks of all tiers then, as a multiple of today's.
};

// A host tier of that size instead of today's last one: a size such as "512GiB", or "2x" for a
// multiple of today's host memory. Without a host tier, a size means a new one. Errors:
// INVALID_ARGUMENT.
absl::StatusOr<AdviceQuestion> AskHostMemory(const v1::GetStatusResponse& status,
                                             const std::string& size);
// The same question for a disk tier.
absl::StatusOr<AdviceQuestion> AskDisk(const v1::GetStatusResponse& status,
                                       const std::string& size);
// Twice the host memory below the first tier; without one, twice the memory of all tiers.
AdviceQuestion DefaultQuestion(const v1::GetStatusResponse& status);

// The answers to `questions` are the last points of each curve, in the same order. The points
// before them are the table.
struct Advice {
  v1::GetHitRateCurveResponse curves;
  std::vector<AdviceQuestion> questions;
};
std::string AdviceText(const Advice& advice);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_ADMIN_ADVICE_TEXT_H_

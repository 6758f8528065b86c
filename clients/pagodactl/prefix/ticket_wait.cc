#include "clients/pagodactl/prefix/ticket_wait.h"

#include <optional>

#include "absl/time/clock.h"
#include "base/error.h"

namespace pagoda {
namespace {

Ticket CompletedOf(const BatchResult& batch, Lane lane) {
  switch (lane) {
    case Lane::kMemory:
      return batch.completed;
    case Lane::kFetch:
      return batch.completed_fetch;
    case Lane::kBackup:
      return batch.completed_backup;
  }
  return {};
}

}  // namespace

absl::Status AwaitTicket(CacheClient& client, Ticket ticket, Lane lane, absl::Duration patience) {
  if (ticket == Ticket{}) return absl::OkStatus();
  const Operation wait = WaitForTicket{ticket, lane};
  absl::Time give_up = absl::Now() + patience;
  std::optional<Ticket> completed;
  while (true) {
    const absl::StatusOr<BatchResult> batch = client.Execute({&wait, 1});
    if (!batch.ok()) return batch.status();
    const absl::Status waited = batch->results.front().status();
    if (ReasonOf(waited) != Reason::kWaitTimeout) return waited;
    const Ticket reached = CompletedOf(*batch, lane);
    if (completed.has_value() && reached > *completed) give_up = absl::Now() + patience;
    completed = reached;
    if (absl::Now() >= give_up) return waited;
  }
}

}  // namespace pagoda

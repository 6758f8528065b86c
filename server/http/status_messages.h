// The answers of /api/v1 that no gRPC method gives, as messages of status.proto.
#ifndef PAGODA_SERVER_HTTP_STATUS_MESSAGES_H_
#define PAGODA_SERVER_HTTP_STATUS_MESSAGES_H_

#include <cstdint>

#include "absl/types/span.h"
#include "events/event.h"
#include "manager/accounts/tenants.h"
#include "manager/api/cache_client.h"
#include "manager/api/stats.h"
#include "manager/tree/prefix_uses.h"
#include "pagoda/v1/status.pb.h"
#include "server/cache/status_history.h"
#include "server/watch/subscriber_row.h"

namespace pagoda::server {

// `cache` has the names of the tiers.
void HistoryToProto(absl::Span<const StatusSample> samples, const CacheInfo& cache,
                    v1::StatusHistory* out);

// Sets the cells: at most `max_cells`, all with the same number of slots except the last one, which
// can have fewer. A spare slot is in no cell.
void SlotsToCells(absl::Span<const SlotState> slots, uint32_t max_cells, v1::TierBlockMap* out);

void PrefixUseToProto(const PrefixUse& use, const TenantOptions& tenant, const CacheInfo& cache,
                      v1::PrefixUse* out);

// Lists at most kShownBlocks block ids, and no tokens.
inline constexpr size_t kShownBlocks = 8;
void EventToSummary(const Event& event, const TenantTable& tenants, v1::EventSummary* out);

// `last` is the last revision of the log. It can be older than the row.
void SubscriberRowToProto(const SubscriberRow& row, const TenantTable& tenants, Revision last,
                          v1::SubscriberInfo* out);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_STATUS_MESSAGES_H_

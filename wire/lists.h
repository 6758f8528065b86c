// Converts the rows of AdminService's lists, field by field.
#ifndef PAGODA_WIRE_LISTS_H_
#define PAGODA_WIRE_LISTS_H_

#include "manager/accounts/tenants.h"
#include "manager/api/cache_client.h"
#include "manager/api/stats.h"
#include "manager/words/lists.h"
#include "pagoda/v1/admin.pb.h"

namespace pagoda {

// Leaves out a lease without end, which the bundled engine's session has.
void SessionRowToProto(const SessionRow& row, v1::SessionInfo* out);
void SequenceRowToProto(const SequenceRow& row, v1::SequenceInfo* out);
// `cache` names the tiers.
void TenantUsageToProto(const TenantUsage& usage, const TenantOptions& tenant,
                        const CacheInfo& cache, v1::TenantInfo* out);
void InspectedPrefixToProto(const InspectedPrefix& prefix, const CacheInfo& cache,
                            v1::InspectPrefixResponse* out);

}  // namespace pagoda

#endif  // PAGODA_WIRE_LISTS_H_

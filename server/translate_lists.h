// The rows of AdminService's lists, field for field. Decides nothing.
#ifndef PAGODA_SERVER_TRANSLATE_LISTS_H_
#define PAGODA_SERVER_TRANSLATE_LISTS_H_

#include "manager/lists.h"
#include "manager/stats.h"
#include "manager/tenants.h"
#include "pagoda/v1/admin.pb.h"

namespace pagoda::server {

// A lease without end, as the bundled engine's session has it, is left out.
void SessionRowToProto(const SessionRow& row, v1::SessionInfo* out);
void SequenceRowToProto(const SequenceRow& row, v1::SequenceInfo* out);
void TenantUsageToProto(const TenantUsage& usage, const TenantOptions& tenant, v1::TenantInfo* out);
void InspectedPrefixToProto(const InspectedPrefix& prefix, v1::InspectPrefixResponse* out);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_TRANSLATE_LISTS_H_

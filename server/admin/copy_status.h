// Copies of blocks, and the tier on disk, as messages of GetStatus.
#ifndef PAGODA_SERVER_ADMIN_COPY_STATUS_H_
#define PAGODA_SERVER_ADMIN_COPY_STATUS_H_

#include "manager/api/cache_client.h"
#include "manager/api/stats.h"
#include "pagoda/v1/admin.pb.h"
#include "pools/transfers.h"
#include "server/cache/disk_tier.h"

namespace pagoda::server {

// In these functions `cache` names the tiers. The tier on disk is its last one.

// The copies in memory, and those to and from the disk. `disk` is null if there is no such tier.
void TransfersToStatus(const TransferStats& stats, const DiskNumbers* disk, const CacheInfo& cache,
                       v1::TransferStatus* out);
void DiskToStatus(const ManagerStats& stats, const DiskNumbers& disk, const CacheInfo& cache,
                  v1::DiskStatus* out);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_ADMIN_COPY_STATUS_H_

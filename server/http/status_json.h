// Rows of the core and the daemon as JSON, for people and scripts. Enumerations are names, times
// are seconds since 1970, durations are seconds, hashes and epochs are 16 hexadecimal digits.
#ifndef PAGODA_SERVER_HTTP_STATUS_JSON_H_
#define PAGODA_SERVER_HTTP_STATUS_JSON_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "events/event.h"
#include "manager/accounts/tenants.h"
#include "manager/api/cache_client.h"
#include "manager/api/stats.h"
#include "manager/tree/prefix_uses.h"
#include "manager/words/lists.h"
#include "nlohmann/json_fwd.hpp"
#include "pagoda/v1/engine_process.pb.h"
#include "pools/layout.h"
#include "pools/transfers.h"
#include "server/cache/disk_tier.h"
#include "server/cache/status_history.h"
#include "server/watch/subscriber_row.h"

namespace pagoda::server {

using Json = nlohmann::ordered_json;

// The JSON text. Bytes that are not UTF-8, such as those in a client's name, become U+FFFD.
std::string TextOf(const Json& json);

double SecondsSince1970(absl::Time time);
std::string HexOf(uint64_t value);

// In the functions below, `cache` has the names of the tiers, and `disk` is null if there is no
// tier on disk.

// The windows with their tiers and counters. `layout` has the same windows in the same order.
Json WindowsJson(const ManagerStats& stats, const CacheInfo& cache, const CacheLayout& layout,
                 const PoolSet& pools);
// The tiers, nearest first: name and medium.
Json TiersJson(const CacheInfo& cache);
Json TransfersJson(const TransferStats& stats, const DiskNumbers* disk, const CacheInfo& cache);
// The tier on disk: the modes of its files and its reads and writes. The folder's path, and the
// system's message about a file that is no longer written or read, are for operators only.
enum class DiskDetail : uint8_t { kForAll, kForOperators };
Json DiskJson(const ManagerStats& stats, const DiskNumbers* disk, DiskDetail detail);
// One array for each column, so that ten minutes take 20 kB.
Json HistoryJson(absl::Span<const StatusSample> samples, const CacheInfo& cache);

// The slots of a tier in at most `max_cells` cells. All cells have the same number of slots, except
// the last one, which can have fewer. A cell is a list of the numbers of its slots that are free,
// cached, active, pinned and in flight.
Json CellsJson(absl::Span<const SlotState> slots, uint32_t max_cells);

// The result of the self-test of a GPU's kernels; null for no report.
Json GpuReportJson(const v1::GpuSelfTest* report);

Json SessionJson(const SessionRow& row, const TenantOptions& tenant);
Json TenantJson(const TenantUsage& usage, const TenantOptions& tenant, const CacheInfo& cache);
Json PrefixJson(const PrefixUse& use, const TenantOptions& tenant, const CacheInfo& cache);
Json SubscriberJson(const SubscriberRow& row, const TenantTable& tenants, Revision last,
                    absl::Time now);
// Lists at most kShownBlocks block ids, and no tokens.
inline constexpr size_t kShownBlocks = 8;
Json EventJson(const Event& event, const TenantTable& tenants, const CacheInfo& cache);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_STATUS_JSON_H_

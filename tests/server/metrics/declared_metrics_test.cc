// Every declared metric (base/metric.h) is where its declaration says.
#include "base/metric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "manager/api/stats.h"
#include "manager/cache_lists.h"
#include "pagoda/v1/admin.pb.h"
#include "pagoda/v1/status.pb.h"
#include "prometheus/text_serializer.h"
#include "server/admin/declared_status.h"
#include "server/metrics/cache_metrics.h"
#include "server/metrics/declared_families.h"
#include "server/metrics/disk_metrics.h"
#include "server/metrics/store_metrics.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda::server {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Labels = std::vector<std::string>;

// Each cache has the family's samples, under the label `cache`; or the daemon has them once.
enum class Scope { kCache, kDaemon };

// One table of declarations, without the type of its statistics.
struct Table {
  struct Family {
    std::string name;
    std::string help;
    prometheus::MetricType type;
    Labels labels;
  };
  Scope scope;
  std::vector<Family> families;
  std::vector<std::string> status_fields;
  // Writes the table's values of new statistics into a message.
  std::function<void(google::protobuf::Message*)> set_status;
  std::unique_ptr<google::protobuf::Message> status;
};

// `labels`: those that all of the table's families have. `Status`: the message with its fields.
template <class Status = void, class Stats, size_t kMetrics>
Table TableOf(const Metric<Stats> (&metrics)[kMetrics], Scope scope, const Labels& labels) {
  Table table;
  table.scope = scope;
  for (const Metric<Stats>& metric : metrics) {
    if (!metric.status.empty()) table.status_fields.emplace_back(metric.status);
    if (metric.family.empty()) continue;
    if (!table.families.empty() && table.families.back().name == metric.family) {
      EXPECT_EQ(metric.help, "") << metric.family << " has its help in its first row";
      continue;
    }
    Table::Family& family = table.families.emplace_back();
    family.name = metric.family;
    family.help = metric.help;
    family.type =
        metric.is_counter() ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge;
    family.labels = labels;
    if (!metric.label.name.empty()) family.labels.emplace_back(metric.label.name);
    const auto* kinds = std::get_if<MetricKinds<Stats>>(&metric.value);
    if (kinds != nullptr) family.labels.emplace_back(kinds->label);
  }
  if constexpr (!std::is_void_v<Status>) {
    table.set_status = [&metrics](auto* out) { SetDeclared(metrics, Stats(), out); };
    table.status = std::make_unique<Status>();
  }
  return table;
}

std::vector<Table> Tables() {
  std::vector<Table> tables;
  tables.push_back(TableOf<v1::TierStatus>(kTierMetrics, Scope::kCache, {"window", "tier"}));
  tables.push_back(TableOf<v1::WindowStatus>(kWindowCounters, Scope::kCache, {"window"}));
  tables.push_back(TableOf<v1::WindowStatus>(kWindowMetrics, Scope::kCache, {"window"}));
  tables.push_back(TableOf(kTenantCounters, Scope::kCache, {"window", "tenant"}));
  tables.push_back(TableOf(kTenantMetrics, Scope::kCache, {"tenant"}));
  tables.push_back(TableOf<v1::GetStatusResponse>(kCacheMetrics, Scope::kCache, {}));
  tables.push_back(TableOf<v1::DiskWindowStatus>(kDiskTierMetrics, Scope::kCache, {"window"}));
  tables.push_back(TableOf<v1::DiskWindowStatus>(kDiskWindowMetrics, Scope::kCache, {"window"}));
  tables.push_back(TableOf<v1::ExchangeStatus>(kExchangeMetrics, Scope::kCache, {}));
  tables.push_back(TableOf<v1::PublisherStatus>(kPublisherMetrics, Scope::kCache, {}));
  tables.push_back(TableOf<v1::StoreStatus>(kStoreMetrics, Scope::kDaemon, {}));
  tables.push_back(TableOf(kSourceMetrics, Scope::kDaemon, {"address"}));
  tables.push_back(TableOf<v1::PeerServerStatus>(kPeerMetrics, Scope::kDaemon, {}));
  tables.push_back(TableOf(kPeerIndexMetrics, Scope::kCache, {}));
  return tables;
}

// All families that the daemon exports of statistics with declarations.
std::map<std::string, prometheus::MetricFamily> Exported() {
  const std::unique_ptr<BlockManager> core = MakeCore(4, 4);
  const CacheLayout layout = TinyLayout(4);
  const ManagerStats stats = core->Stats();
  const std::vector<TenantUsage> uses = core->lists().TenantUses();
  std::map<std::string, prometheus::MetricFamily> exported;
  const auto add = [&exported](const std::vector<prometheus::MetricFamily>& families) {
    for (const prometheus::MetricFamily& family : families) {
      EXPECT_TRUE(exported.emplace(family.name, family).second) << family.name << " comes twice";
    }
  };
  add(CollectCacheMetrics({.stats = stats,
                           .uses = uses,
                           .info = core->info(),
                           .layout = layout,
                           .tenants = core->tenants()},
                          TenantLabels::kNames));
  DiskNumbers disk;
  disk.stats.windows.resize(1);
  disk.stats.windows[0].file.engine = "threads";
  disk.damaged_slots = {0};
  add(CollectDiskMetrics(stats, disk));
  add(CollectExchangeMetrics({}));
  add(CollectPublisherMetrics({}));
  add(CollectStoreMetrics({}));
  add(CollectSourceMetrics({{.address = "10.0.0.1:7072", .stats = {}, .bytes_per_second = 0}}));
  add(CollectPeerMetrics({}));
  add(CollectPeerIndexMetrics({{.name = "c", .index = {}}}));
  return exported;
}

TEST(DeclaredMetricsTest, AreExportedWithTheirTypeAndLabels) {
  const auto exported = Exported();
  std::set<std::string> declared;
  for (const Table& table : Tables()) {
    for (const Table::Family& family : table.families) {
      EXPECT_TRUE(declared.insert(family.name).second) << family.name << " is declared twice";
      const auto found = exported.find(family.name);
      ASSERT_NE(found, exported.end()) << family.name << " is declared and not in /metrics";
      EXPECT_EQ(found->second.type, family.type) << family.name;
      EXPECT_EQ(found->second.help, family.help) << family.name;
      ASSERT_FALSE(found->second.metric.empty()) << family.name << " has no sample";
      for (const prometheus::ClientMetric& metric : found->second.metric) {
        Labels labels;
        for (const auto& label : metric.label) {
          if (label.name != "cache") labels.push_back(label.name);
        }
        // The tenant comes after the row's own label.
        EXPECT_THAT(
            std::set<std::string>(labels.begin(), labels.end()),
            ElementsAreArray(std::set<std::string>(family.labels.begin(), family.labels.end())))
            << family.name;
      }
    }
  }
}

// "* `pagoda_holes` (gauge; `cache`, `window`): Positions ...", in lines of at most 100 columns.
std::string DocumentEntry(const Table::Family& family, Scope scope) {
  Labels labels = family.labels;
  if (scope == Scope::kCache) labels.insert(labels.begin(), "cache");
  const std::string text = absl::StrCat(
      "`", family.name, "` (", family.type == prometheus::MetricType::Counter ? "counter" : "gauge",
      labels.empty() ? "" : absl::StrCat("; `", absl::StrJoin(labels, "`, `"), "`"),
      "): ", family.help);
  std::string entry;
  std::string line = "*";
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    if (line.size() + 1 + word.size() > 100) {
      absl::StrAppend(&entry, line, "\n");
      line = " ";
    }
    absl::StrAppend(&line, " ", word);
  }
  return absl::StrCat(entry, line, "\n");
}

TEST(DeclaredMetricsTest, AreInTheDocumentInTheWordsOfTheirHelp) {
  std::ifstream file(METRICS_DOCUMENT);
  const std::string document((std::istreambuf_iterator<char>(file)), {});
  ASSERT_THAT(document, HasSubstr("# Metrics"));
  for (const Table& table : Tables()) {
    for (const Table::Family& family : table.families) {
      const std::string entry = DocumentEntry(family, table.scope);
      EXPECT_NE(document.find(absl::StrCat("\n", entry)), std::string::npos)
          << "server/METRICS.md lacks this entry:\n"
          << entry;
    }
  }
}

TEST(DeclaredMetricsTest, HaveTheirFieldsInTheStatus) {
  std::set<std::string> seen;
  for (const Table& table : Tables()) {
    if (table.status == nullptr) {
      EXPECT_THAT(table.status_fields, IsEmpty());
      continue;
    }
    const google::protobuf::Descriptor& message = *table.status->GetDescriptor();
    for (const std::string& field : table.status_fields) {
      EXPECT_NE(message.FindFieldByName(field), nullptr) << message.name() << " has no " << field;
      EXPECT_TRUE(seen.insert(absl::StrCat(message.name(), ".", field)).second)
          << message.name() << "." << field << " is declared twice";
    }
    if (!HasFailure()) table.set_status(table.status.get());  // Checks the types.
  }
}

// Counts that a message has and no row: sums of what several rows divide, and lists.
const std::set<std::string>& CountsWithoutARow() {
  static const auto* const counts = new std::set<std::string>{
      "DiskWindowStatus.errors_total",
      "TierStatus.prefix_hit_tokens_total",  // The tenants' counts, added up.
  };
  return *counts;
}

TEST(DeclaredMetricsTest, EveryCounterOfAStatusIsDeclared) {
  std::map<const google::protobuf::Descriptor*, std::set<std::string>> declared;
  for (const Table& table : Tables()) {
    if (table.status == nullptr) continue;
    declared[table.status->GetDescriptor()].insert(table.status_fields.begin(),
                                                   table.status_fields.end());
  }
  for (const auto& [message, fields] : declared) {
    for (int i = 0; i < message->field_count(); ++i) {
      const std::string& name = message->field(i)->name();
      const std::string full = absl::StrCat(message->name(), ".", name);
      if (!absl::EndsWith(name, "_total")) continue;
      EXPECT_NE(fields.contains(name), CountsWithoutARow().contains(full)) << full;
    }
  }
}

struct AnyStats {
  uint64_t blocks = 0;
  uint32_t waiting = 0;
  bool away = false;
  double speed = 0;
  std::array<uint64_t, 3> ends = {};
};
const char* EndName(int end) { return end == 1 ? "good" : "bad"; }
constexpr Metric<AnyStats> kAnyMetrics[] = {
    {&AnyStats::blocks, "a_blocks_total", "written_bytes_total", "Blocks."},
    {&AnyStats::waiting, "a_queue", "waiting", "What waits.", {"state", "waiting"}},
    {[](const AnyStats& stats) { return stats.speed * 2; }, "a_queue", "", "", {"state", "x"}},
    {&AnyStats::away, "", "up"},
    {KindsOf<AnyStats, &AnyStats::ends, EndName, 1>("end"), "a_ends_total", "gets_total", "Ends."},
};
static_assert(EachFieldHasARow<&AnyStats::speed>(kAnyMetrics));
static_assert(!EachFieldHasARow(kAnyMetrics), "a computed row is not the row of a field");

struct TwoCounts {
  std::string name;
  uint64_t first = 0;
  uint64_t second = 0;
};
constexpr Metric<TwoCounts> kFirstTwice[] = {{&TwoCounts::first, "first_total", "", ""},
                                             {&TwoCounts::first, "second_total", "", ""}};
static_assert(!EachFieldHasARow<&TwoCounts::name>(kFirstTwice), "the second count has no row");

TEST(DeclaredMetricsTest, TheStatusHasValuesOfEveryKind) {
  v1::StoreStatus status;
  SetDeclared(kAnyMetrics,
              {.blocks = (1ull << 60) + 1, .waiting = 2, .away = true, .ends = {7, 8, 0}}, &status);
  EXPECT_EQ(status.written_bytes_total(), (1ull << 60) + 1);
  EXPECT_EQ(status.waiting(), 2u);
  EXPECT_TRUE(status.up());
  ASSERT_EQ(status.gets_total_size(), 1) << "without kinds that did not occur or do not count";
  EXPECT_EQ(status.gets_total(0).name(), "good");
  EXPECT_EQ(status.gets_total(0).count(), 8u);
}

TEST(DeclaredMetricsTest, RowsOfOneFamilyAreItsSamples) {
  const auto families =
      CollectDeclared(kAnyMetrics, {.blocks = 1, .waiting = 2, .speed = 1.5, .ends = {7, 8, 0}});
  EXPECT_EQ(prometheus::TextSerializer().Serialize(families),
            "# HELP a_blocks_total Blocks.\n# TYPE a_blocks_total counter\na_blocks_total 1\n"
            "# HELP a_queue What waits.\n# TYPE a_queue gauge\n"
            "a_queue{state=\"waiting\"} 2\na_queue{state=\"x\"} 3\n"
            "# HELP a_ends_total Ends.\n# TYPE a_ends_total counter\n"
            "a_ends_total{end=\"good\"} 8\na_ends_total{end=\"bad\"} 0\n");
}

}  // namespace
}  // namespace pagoda::server

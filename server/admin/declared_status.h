// The fields of status messages that declared metrics name (base/metric.h).
#ifndef PAGODA_SERVER_ADMIN_DECLARED_STATUS_H_
#define PAGODA_SERVER_ADMIN_DECLARED_STATUS_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "base/metric.h"
#include "google/protobuf/message.h"

namespace pagoda::server {

// Sets the field `name` of a message. REQUIRES: the message has it, as uint32, uint64, double or
// bool, and it can have the number.
void SetCount(std::string_view name, uint64_t number, google::protobuf::Message* out);
void SetNumber(std::string_view name, double number, google::protobuf::Message* out);
// Adds a NamedCount to the list `name` of a message. REQUIRES: the message has it.
void AddNamedCount(std::string_view name, std::string_view kind, uint64_t count,
                   google::protobuf::Message* out);

// Sets the fields that the table names. Leaves kinds that did not occur out of a list.
template <class Stats, size_t kMetrics>
void SetDeclared(const Metric<Stats> (&metrics)[kMetrics], const Stats& stats,
                 google::protobuf::Message* out) {
  for (const Metric<Stats>& metric : metrics) {
    if (metric.status.empty()) continue;
    VisitMetric(metric, stats, [&](const MetricLabel& kind, auto number) {
      if constexpr (std::is_floating_point_v<decltype(number)>) {
        SetNumber(metric.status, number, out);
      } else if (kind.name.empty()) {
        SetCount(metric.status, number, out);
      } else if (number != 0) {
        AddNamedCount(metric.status, kind.value, number, out);
      }
    });
  }
}

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_ADMIN_DECLARED_STATUS_H_

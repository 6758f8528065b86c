// Builds Prometheus families at scrape time.
#ifndef PAGODA_SERVER_CALLS_METRIC_FAMILY_H_
#define PAGODA_SERVER_CALLS_METRIC_FAMILY_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "pools/duration_histogram.h"
#include "pools/types.h"
#include "prometheus/client_metric.h"
#include "prometheus/metric_family.h"

namespace pagoda::server {

using MetricLabels = std::vector<prometheus::ClientMetric::Label>;

// Returns `labels` with one label added.
inline MetricLabels WithLabel(MetricLabels labels, std::string name, std::string value) {
  labels.push_back({std::move(name), std::move(value)});
  return labels;
}

inline prometheus::MetricFamily CounterFamily(std::string name, std::string help) {
  return {std::move(name), std::move(help), prometheus::MetricType::Counter, {}};
}
inline prometheus::MetricFamily GaugeFamily(std::string name, std::string help) {
  return {std::move(name), std::move(help), prometheus::MetricType::Gauge, {}};
}

inline prometheus::MetricFamily HistogramFamily(std::string name, std::string help) {
  return {std::move(name), std::move(help), prometheus::MetricType::Histogram, {}};
}

inline double AsDouble(uint64_t value) { return static_cast<double>(value); }

// Adds one histogram to a histogram's family.
inline void AddHistogram(prometheus::MetricFamily& family, MetricLabels labels,
                         const DurationHistogram& histogram) {
  prometheus::ClientMetric& metric = family.metric.emplace_back();
  metric.label = std::move(labels);
  metric.histogram.sample_count = histogram.total();
  metric.histogram.sample_sum = histogram.sum_seconds();
  uint64_t up_to = 0;
  for (size_t i = 0; i <= histogram.bounds().size(); ++i) {
    up_to += histogram.count(i);
    metric.histogram.bucket.push_back({up_to, i < histogram.bounds().size()
                                                  ? histogram.bounds()[i]
                                                  : std::numeric_limits<double>::infinity()});
  }
}

// Adds one sample to a counter's or gauge's family.
inline void AddSample(prometheus::MetricFamily& family, MetricLabels labels, double value) {
  prometheus::ClientMetric& metric = family.metric.emplace_back();
  metric.label = std::move(labels);
  if (family.type == prometheus::MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
}

inline prometheus::MetricFamily Counter(std::string name, std::string help, double value) {
  prometheus::MetricFamily family = CounterFamily(std::move(name), std::move(help));
  AddSample(family, {}, value);
  return family;
}
inline prometheus::MetricFamily Gauge(std::string name, std::string help, double value) {
  prometheus::MetricFamily family = GaugeFamily(std::move(name), std::move(help));
  AddSample(family, {}, value);
  return family;
}

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CALLS_METRIC_FAMILY_H_

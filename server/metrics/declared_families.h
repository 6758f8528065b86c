// The families of declared metrics (base/metric.h).
#ifndef PAGODA_SERVER_METRICS_DECLARED_FAMILIES_H_
#define PAGODA_SERVER_METRICS_DECLARED_FAMILIES_H_

#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/metric.h"
#include "prometheus/metric_family.h"
#include "server/calls/metric_family.h"

namespace pagoda::server {

// The families of one table of declarations, in its order. Families without samples are among them.
template <class Stats>
class DeclaredFamilies {
 public:
  // `metrics` must outlive this object.
  explicit DeclaredFamilies(absl::Span<const Metric<Stats>> metrics) : metrics_(metrics) {
    std::string_view last;
    for (const Metric<Stats>& metric : metrics) {
      if (metric.family.empty() || metric.family == last) continue;
      last = metric.family;
      families_.push_back(metric.is_counter()
                              ? CounterFamily(std::string(metric.family), std::string(metric.help))
                              : GaugeFamily(std::string(metric.family), std::string(metric.help)));
    }
  }

  // Adds the samples of `stats`. Their labels are `labels` and the row's own ones. `add` takes the
  // family, the labels and the value, as AddSample does.
  template <class AddOne>
  void Add(const MetricLabels& labels, const Stats& stats, AddOne add) {
    auto family = families_.begin();
    for (const Metric<Stats>& metric : metrics_) {
      if (metric.family.empty()) continue;
      if (metric.family != family->name) ++family;
      VisitMetric(metric, stats, [&](const MetricLabel& kind, auto number) {
        MetricLabels all = labels;
        for (const MetricLabel& own : {metric.label, kind}) {
          if (!own.name.empty()) all.push_back({std::string(own.name), std::string(own.value)});
        }
        add(*family, std::move(all), static_cast<double>(number));
      });
    }
  }
  void Add(const MetricLabels& labels, const Stats& stats) { Add(labels, stats, AddSample); }

  // Appends the families to `out`. Call it last.
  void MoveTo(std::vector<prometheus::MetricFamily>& out) {
    out.insert(out.end(), std::make_move_iterator(families_.begin()),
               std::make_move_iterator(families_.end()));
  }

 private:
  const absl::Span<const Metric<Stats>> metrics_;
  std::vector<prometheus::MetricFamily> families_;
};

template <class Stats, size_t kMetrics>
DeclaredFamilies(const Metric<Stats> (&)[kMetrics]) -> DeclaredFamilies<Stats>;

// The families of a table for one object.
template <class Stats, size_t kMetrics>
std::vector<prometheus::MetricFamily> CollectDeclared(const Metric<Stats> (&metrics)[kMetrics],
                                                      const Stats& stats) {
  DeclaredFamilies families(metrics);
  families.Add({}, stats);
  std::vector<prometheus::MetricFamily> out;
  families.MoveTo(out);
  return out;
}

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_METRICS_DECLARED_FAMILIES_H_

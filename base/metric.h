// Declares counters and gauges once, beside the statistics that have their values.
//
// A declaration is a row of a table in C++, not an option of a field in the protobuf contract: most
// labels (tenant, tier, reason) divide values that GetStatus has only as sums, and a scrape then
// reads the statistics themselves. From a row follow
// * its family in /metrics (server/metrics/declared_families.h),
// * its field in GetStatus (server/admin/declared_status.h), and so in all that prints this
// message,
// * its entry in server/METRICS.md, which a test compares with the row.
//
// Below each table, a static_assert with EachFieldHasARow finds fields without a row.
#ifndef PAGODA_BASE_METRIC_H_
#define PAGODA_BASE_METRIC_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace pagoda {

struct MetricLabel {
  std::string_view name;
  std::string_view value;
};

// The counts of an array, one for each value of an enum.
template <class Stats>
struct MetricKinds {
  std::string_view label;  // "outcome"; its values are the names.
  size_t begin;            // The first value of the enum that counts.
  size_t end;
  const char* (*name)(size_t kind);  // "missing"
  uint64_t (*count)(const Stats& stats, size_t kind);
};

namespace metric_internal {
template <class Kind>
Kind KindOf(const char* (*name)(Kind));
}  // namespace metric_internal

// `kCounts` is an array in `Stats`, and `kName` the function with the names of its enum.
template <class Stats, auto kCounts, auto kName, size_t kBegin = 0>
constexpr MetricKinds<Stats> KindsOf(std::string_view label) {
  using Counts = std::remove_cvref_t<decltype(std::declval<Stats>().*kCounts)>;
  using Kind = decltype(metric_internal::KindOf(kName));
  return {.label = label,
          .begin = kBegin,
          .end = std::tuple_size_v<Counts>,
          .name = [](size_t kind) { return kName(static_cast<Kind>(kind)); },
          .count = [](const Stats& stats, size_t kind) { return (stats.*kCounts)[kind]; }};
}

// Where a value is: a field, a value that is computed from fields, or an array by kind.
template <class Stats>
using MetricValue = std::variant<uint64_t Stats::*, uint32_t Stats::*, double Stats::*,
                                 bool Stats::*, double (*)(const Stats&), MetricKinds<Stats>>;

template <class Stats>
struct Metric {
  MetricValue<Stats> value;
  // The name of the family in /metrics: of a counter if it ends in _total, else of a gauge. The
  // unit is in the name. Empty: the value is only in GetStatus. Rows of one family stand together.
  std::string_view family;
  // The field of the status message. A field of an array by kind is a list of NamedCount. Empty:
  // the value is only in /metrics.
  std::string_view status;
  // What the family counts, in whole sentences, with the meaning of the label's values. A further
  // row of the same family has none.
  std::string_view help;
  // For a family with several rows: what tells this one from the others.
  MetricLabel label = {};

  constexpr bool is_counter() const { return family.ends_with("_total"); }
};

// Calls `visit(kind, number)` once, with an empty label; or once for each kind of an array, with
// the label that names it. `number` has the field's type.
template <class Stats, class Visit>
void VisitMetric(const Metric<Stats>& metric, const Stats& stats, Visit visit) {
  std::visit(
      [&](const auto& value) {
        using Value = std::remove_cvref_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, MetricKinds<Stats>>) {
          for (size_t kind = value.begin; kind < value.end; ++kind) {
            visit(MetricLabel{value.label, value.name(kind)}, value.count(stats, kind));
          }
        } else if constexpr (std::is_member_object_pointer_v<Value>) {
          visit(MetricLabel(), stats.*value);
        } else {
          visit(MetricLabel(), value(stats));
        }
      },
      metric.value);
}

namespace metric_internal {

// Converts to the type of any field.
struct AnyField {
  template <class Field>
  operator Field() const;
};

// The number of fields of an aggregate: the most values that initialize it.
template <class Stats, class... Fields>
consteval size_t NumFields() {
  if constexpr (requires { Stats{Fields{}..., AnyField{}}; }) {
    return NumFields<Stats, Fields..., AnyField>();
  } else {
    return sizeof...(Fields);
  }
}

// Whether the two rows read the same field. A computed value is no field.
template <class Stats>
constexpr bool ReadSameField(const Metric<Stats>& a, const Metric<Stats>& b) {
  return std::visit(
      [](const auto& x, const auto& y) {
        using X = std::remove_cvref_t<decltype(x)>;
        if constexpr (!std::is_same_v<X, std::remove_cvref_t<decltype(y)>>) {
          return false;
        } else if constexpr (std::is_same_v<X, MetricKinds<Stats>>) {
          return x.count == y.count;
        } else {
          return std::is_member_object_pointer_v<X> && x == y;
        }
      },
      a.value, b.value);
}

}  // namespace metric_internal

// Whether each field of `Stats` has a row of its own or is one of kOthers: fields whose values have
// other labels, are read by computed rows, or are not for operators.
template <auto... kOthers, class Stats, size_t kRows>
consteval bool EachFieldHasARow(const Metric<Stats> (&rows)[kRows]) {
  size_t fields = sizeof...(kOthers);
  for (size_t i = 0; i < kRows; ++i) {
    if (metric_internal::ReadSameField(rows[i], rows[i])) ++fields;
    for (size_t j = 0; j < i; ++j) {
      if (metric_internal::ReadSameField(rows[i], rows[j])) return false;
    }
  }
  return fields == metric_internal::NumFields<Stats>();
}

}  // namespace pagoda

#endif  // PAGODA_BASE_METRIC_H_

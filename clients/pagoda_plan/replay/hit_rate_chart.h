// A picture of hit rates by capacity.
#ifndef PAGODA_CLIENTS_PAGODA_PLAN_REPLAY_HIT_RATE_CHART_H_
#define PAGODA_CLIENTS_PAGODA_PLAN_REPLAY_HIT_RATE_CHART_H_

#include <cstdint>
#include <string>
#include <vector>

namespace pagoda {

struct HitRateLine {
  struct Point {
    uint64_t blocks = 0;  // At least 1.
    double hit_rate = 0;  // 0 to 1.
  };

  std::string name;           // For the legend.
  std::vector<Point> points;  // Ascending by blocks.
};

// An SVG picture of the lines: the capacity on a logarithmic axis, the hit rate in percent, axes
// with labels, and a legend. The lines differ in colour, in their marks and in their dashes, so
// that they can be told apart without colours too. The background is white. Texts are escaped.
// REQUIRES: there is at least one point.
std::string HitRateSvg(const std::string& title, const std::vector<HitRateLine>& lines);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_PLAN_REPLAY_HIT_RATE_CHART_H_

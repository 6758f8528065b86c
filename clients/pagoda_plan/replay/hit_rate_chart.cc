#include "clients/pagoda_plan/replay/hit_rate_chart.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "clients/command_line/terminal/format.h"

namespace pagoda {
namespace {

// In pixels.
constexpr double kWidth = 860, kLeastHeight = 480;
constexpr double kLeft = 72, kRight = 640, kTop = 48, kBottom = 412;
constexpr double kLegendX = 664, kLegendStep = 22;

// Okabe and Ito's colours, which people with any kind of colour vision tell apart.
constexpr std::array kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                 "#000000", "#e69f00", "#56b4e9"};
constexpr std::array kDashes = {"none", "7 3", "2 3"};

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

class Chart {
 public:
  explicit Chart(const std::vector<HitRateLine>& lines) : lines_(lines) {
    uint64_t least = ~uint64_t{0}, most = 1;
    double highest = 0;
    for (const HitRateLine& line : lines) {
      for (const HitRateLine::Point& point : line.points) {
        least = std::min(least, point.blocks);
        most = std::max(most, point.blocks);
        highest = std::max(highest, point.hit_rate);
      }
    }
    least_ = std::log10(static_cast<double>(least));
    most_ = std::log10(static_cast<double>(most));
    // A single capacity stands in the middle.
    if (most_ - least_ < 0.1) {
      least_ -= 0.5;
      most_ += 0.5;
    }
    for (const double step : {0.01, 0.02, 0.05, 0.1, 0.2}) {
      step_ = step;
      if (highest <= 6 * step) break;
    }
    top_ = std::max(1.0, std::ceil(highest / step_)) * step_;
  }

  std::string Draw(const std::string& title) {
    const double height =
        std::max(kLeastHeight, kTop + kLegendStep * static_cast<double>(lines_.size() + 1));
    absl::StrAppendFormat(
        &svg_,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" width=\"%g\" "
        "height=\"%g\" role=\"img\" font-family=\"sans-serif\" font-size=\"13\">\n"
        "<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
        kWidth, height, kWidth, height, Escaped(title));
    Text(kLeft, kTop - 20, "start", title, " font-size=\"15\" font-weight=\"bold\"");
    DrawHitRates();
    DrawCapacities();
    for (size_t i = 0; i < lines_.size(); ++i) DrawLine(i);
    svg_ += "</svg>\n";
    return std::move(svg_);
  }

 private:
  double X(uint64_t blocks) const {
    const double place = (std::log10(static_cast<double>(blocks)) - least_) / (most_ - least_);
    return kLeft + place * (kRight - kLeft);
  }
  double Y(double hit_rate) const { return kBottom - hit_rate / top_ * (kBottom - kTop); }

  void Text(double x, double y, const char* anchor, const std::string& text,
            const std::string& attributes = "") {
    absl::StrAppendFormat(
        &svg_, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"#222222\"%s>%s</text>\n", x,
        y, anchor, attributes, Escaped(text));
  }
  void Rule(double x1, double y1, double x2, double y2, const char* colour) {
    absl::StrAppendFormat(&svg_,
                          "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n",
                          x1, y1, x2, y2, colour);
  }

  void DrawHitRates() {
    for (int i = 0; i * step_ < top_ + step_ / 2; ++i) {
      const double y = Y(i * step_);
      Rule(kLeft, y, kRight, y, i == 0 ? "#222222" : "#dddddd");
      Text(kLeft - 8, y + 4.5, "end", absl::StrFormat("%.0f %%", 100 * i * step_));
    }
    const double middle = (kTop + kBottom) / 2;
    Text(20, middle, "middle", "hit rate",
         absl::StrFormat(" transform=\"rotate(-90 20 %.1f)\"", middle));
  }

  // A mark at 1, 2 and 5 times each power of ten.
  void DrawCapacities() {
    Rule(kLeft, kTop, kLeft, kBottom, "#222222");
    // More of them than this would not fit next to each other.
    const bool only_powers = most_ - least_ > 3;
    for (double power = 1; power < 1e12; power *= 10) {
      for (const int digit : {1, 2, 5}) {
        const auto blocks = static_cast<uint64_t>(digit * power);
        const double x = X(blocks);
        if (x < kLeft - 0.5 || x > kRight + 0.5) continue;
        Rule(x, kBottom, x, kBottom + 5, "#222222");
        if (digit == 1 || !only_powers) Text(x, kBottom + 20, "middle", FormatCount(blocks));
      }
    }
    Text((kLeft + kRight) / 2, kBottom + 46, "middle", "capacity in blocks");
  }

  void Mark(size_t line, double x, double y) {
    const char* colour = kColours[line % kColours.size()];
    switch (line % 4) {
      case 0:
        absl::StrAppendFormat(&svg_, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n", x,
                              y, colour);
        return;
      case 1:
        absl::StrAppendFormat(
            &svg_, "<rect x=\"%.1f\" y=\"%.1f\" width=\"7\" height=\"7\" fill=\"%s\"/>\n", x - 3.5,
            y - 3.5, colour);
        return;
      case 2:
        absl::StrAppendFormat(&svg_, "<path d=\"M%.1f %.1fl4.5 8h-9z\" fill=\"%s\"/>\n", x, y - 5,
                              colour);
        return;
      default:
        absl::StrAppendFormat(&svg_, "<path d=\"M%.1f %.1fl4.5 5-4.5 5-4.5-5z\" fill=\"%s\"/>\n", x,
                              y - 5, colour);
    }
  }

  void Stroke(size_t line, const std::string& points) {
    absl::StrAppendFormat(&svg_,
                          "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\" "
                          "stroke-dasharray=\"%s\"/>\n",
                          points, kColours[line % kColours.size()],
                          kDashes[line / kColours.size() % kDashes.size()]);
  }

  void DrawLine(size_t line) {
    std::string points;
    for (const HitRateLine::Point& point : lines_[line].points) {
      absl::StrAppendFormat(&points, "%s%.1f,%.1f", points.empty() ? "" : " ", X(point.blocks),
                            Y(point.hit_rate));
    }
    Stroke(line, points);
    for (const HitRateLine::Point& point : lines_[line].points) {
      Mark(line, X(point.blocks), Y(point.hit_rate));
    }
    const double y = kTop + 8 + kLegendStep * static_cast<double>(line);
    Stroke(line, absl::StrFormat("%.1f,%.1f %.1f,%.1f", kLegendX, y, kLegendX + 28, y));
    Mark(line, kLegendX + 14, y);
    Text(kLegendX + 36, y + 4.5, "start", lines_[line].name);
  }

  const std::vector<HitRateLine>& lines_;
  double least_ = 0, most_ = 1;  // log10 of the capacities.
  double step_ = 0.1, top_ = 1;  // The axis of the hit rates.
  std::string svg_;
};

}  // namespace

std::string HitRateSvg(const std::string& title, const std::vector<HitRateLine>& lines) {
  return Chart(lines).Draw(title);
}

}  // namespace pagoda

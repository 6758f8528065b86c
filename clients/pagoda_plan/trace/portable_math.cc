#include "clients/pagoda_plan/trace/portable_math.h"

#include <cmath>
#include <cstdint>
#include <numbers>

namespace pagoda {
namespace {

// The logarithm of 2 in two parts. The first has few enough bits that a small integer times it is
// exact.
constexpr double kLog2High = 0x1.62e42feep-1;
constexpr double kLog2Low = 0x1.a39ef35793c76p-33;

// The sum of x^n / n! over n = first, first + 2, ..., 18 at most, with alternating signs.
double AlternatingSeries(double x, int first) {
  double term = first == 0 ? 1 : x;
  double sum = term;
  for (int n = first + 2; n <= 18; n += 2) {
    term = term * x * x / (static_cast<double>(n) * (n - 1));
    sum = (n - first) % 4 == 2 ? sum - term : sum + term;
  }
  return sum;
}

}  // namespace

// value = m * 2^e, and log(m) = 2 artanh(s) for s = (m - 1) / (m + 1), |s| < 0.172.
double PortableLog(double value) {
  int e = 0;
  double m = std::frexp(value, &e);  // From 0.5.
  if (m < std::numbers::sqrt2 / 2) {
    m *= 2;
    --e;
  }
  const double s = (m - 1) / (m + 1);
  const double square = s * s;
  double sum = 0;
  for (int n = 25; n >= 3; n -= 2) sum = (sum + 1.0 / n) * square;
  // Small parts first.
  const double log_m = 2 * s + 2 * s * sum;
  return e == 0 ? log_m : e * kLog2High + (log_m + e * kLog2Low);
}

// power = k * log(2) + r, |r| < 0.347.
double PortableExp(double power) {
  const double k = std::floor(power / std::numbers::ln2 + 0.5);
  const double r = (power - k * kLog2High) - k * kLog2Low;
  double sum = 0;
  for (int n = 16; n >= 1; --n) sum = (sum + 1) * r / n;
  return std::ldexp(1 + sum, static_cast<int>(k));
}

// The turns are q quarters and at most an eighth.
double PortableCosOfTurns(double turns) {
  const double q = std::floor(4 * turns + 0.5);
  const double angle = (4 * turns - q) * (std::numbers::pi / 2);
  switch (static_cast<int64_t>(q) & 3) {
    case 0:
      return AlternatingSeries(angle, 0);
    case 1:
      return -AlternatingSeries(angle, 1);
    case 2:
      return -AlternatingSeries(angle, 0);
    default:
      return AlternatingSeries(angle, 1);
  }
}

}  // namespace pagoda

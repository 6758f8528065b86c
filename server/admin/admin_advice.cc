// The part of AdminService that tells the hit rates of other capacities.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "manager/advice/hit_rate_curve.h"
#include "server/admin/admin_service.h"
#include "wire/vocabulary.h"

namespace pagoda::server {
namespace {

constexpr int kMaxFactors = 64;

// From a quarter to the most that the sample covers.
std::vector<double> DefaultFactors() {
  constexpr int kPerDoubling = 4;
  std::vector<double> factors;
  for (int i = -2 * kPerDoubling; i <= 4 * kPerDoubling; ++i) {
    factors.push_back(std::exp2(static_cast<double>(i) / kPerDoubling));
  }
  return factors;
}

absl::StatusOr<std::vector<double>> FactorsOf(const v1::GetHitRateCurveRequest& request) {
  if (request.capacity_factors().empty()) return DefaultFactors();
  if (request.capacity_factors_size() > kMaxFactors) {
    return MakeError(Reason::kInvalidCount,
                     absl::StrCat(request.capacity_factors_size(), " capacity factors; at most ",
                                  kMaxFactors, " are allowed"));
  }
  for (const double factor : request.capacity_factors()) {
    if (!(factor > 0) || !std::isfinite(factor)) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("the capacity factor ", factor, " is not positive and finite"));
    }
  }
  return std::vector<double>(request.capacity_factors().begin(), request.capacity_factors().end());
}

void WindowToCurve(const WindowStats& stats, const CacheInfo& cache, uint64_t block_bytes,
                   const std::vector<double>& factors, v1::WindowHitRateCurve* out) {
  const ReuseCounts& counts = stats.reuse_distances;
  out->set_window_size(WindowToProto(stats.window));
  uint64_t blocks = 0;
  for (const TierOccupancy& tier : stats.tiers) blocks += tier.capacity;
  out->set_capacity_blocks(blocks);
  out->set_capacity_bytes(blocks * block_bytes);
  *out->mutable_observed_time() = DurationToProto(counts.observed);
  out->set_observed_requests(counts.requests);
  out->set_sampled_share(counts.rate);
  const HitRateCurve curve(&counts);
  if (std::string why = curve.WhyUnavailable(); !why.empty()) {
    out->set_unavailable(std::move(why));
    return;
  }
  out->set_hit_rate(curve.hit_rate());
  out->set_lookup_tokens_per_hour(curve.lookups_per_hour() * cache.tokens_per_block);
  out->set_known_factor(curve.known_factor());
  out->set_gain_ends_factor(curve.GainEnd());
  for (const double factor : factors) {
    const HitRateCurve::Estimate estimate = curve.At(factor);
    v1::HitRatePoint* const point = out->add_points();
    point->set_capacity_factor(std::min(factor, HitRateCurve::kMaxFactor));
    point->set_capacity_blocks(
        static_cast<uint64_t>(point->capacity_factor() * static_cast<double>(blocks)));
    point->set_hit_rate(estimate.hit_rate);
    point->set_error(estimate.error);
  }
}

}  // namespace

absl::Status AdminService::GetHitRateCurve(const Identity& caller,
                                           const v1::GetHitRateCurveRequest& request,
                                           v1::GetHitRateCurveResponse* response) {
  const absl::StatusOr<CachePtr> cache = parts_.caches->Named(request.cache(), caller);
  if (!cache.ok()) return cache.status();
  const absl::StatusOr<std::vector<double>> factors = FactorsOf(request);
  if (!factors.ok()) return factors.status();
  response->set_cache((*cache)->name);
  *response->mutable_time() = TimeToProto(SharedManager::Now());
  const ManagerStats stats = (*cache)->manager->Read(&BlockManager::Stats);
  for (size_t i = 0; i < stats.windows.size(); ++i) {
    WindowToCurve(stats.windows[i], (*cache)->manager->info(),
                  (*cache)->layout->windows()[i].block_bytes(), *factors, response->add_windows());
  }
  return absl::OkStatus();
}

}  // namespace pagoda::server

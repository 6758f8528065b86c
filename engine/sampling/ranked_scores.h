// Walks a vocabulary's tokens from the most likely on, and sorts only the tokens that it reaches.
#ifndef PAGODA_ENGINE_SAMPLING_RANKED_SCORES_H_
#define PAGODA_ENGINE_SAMPLING_RANKED_SCORES_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "engine/sampling/sampling_loops.h"
#include "pools/types.h"

namespace pagoda {

// Buckets by score. Each bucket has the number of its tokens and the sum of their weights, and is
// sorted when a walk ends in it. Tokens of equal score are in the order of their ids. Keeps its
// memory from one use to the next. Thread-compatible.
class RankedScores {
 public:
  // A token, with the number and the summed weights of all tokens up to it.
  struct Place {
    TokenId token = 0;
    uint64_t count = 0;
    double sum = 0;
  };

  RankedScores() : counts_(kBuckets), sums_(kBuckets) {}

  // `scores` are used until the next Build. `maxima` are the maxima of their blocks, and `most` is
  // the greatest of these. Weights are those of SamplingLoops::weights. Cost: O(scores).
  void Build(const SamplingLoops& loops, absl::Span<const float> scores,
             absl::Span<const float> maxima, float most, double inverse_temperature);

  // The first place for which `stop(count, sum)` is true; the last place if it is true for none.
  // REQUIRES: once true, `stop` is true for all later places. Cost: O(scores), and sorting one
  // bucket.
  Place Find(absl::FunctionRef<bool(uint64_t count, double sum)> stop);

  // The sum of all weights.
  double total() const;

 private:
  struct Row {
    float score;
    TokenId token;
    double weight;
  };
  static constexpr size_t kBuckets = 4096;

  // A greater score is never in a later bucket.
  size_t BucketOf(float score) const {
    const float distance = (most_ - score) * scale_;
    return distance < static_cast<float>(kBuckets - 1) ? static_cast<size_t>(distance)
                                                       : kBuckets - 1;
  }
  // Leaves the bucket's rows in rows_, best first.
  void Sort(size_t bucket);

  const SamplingLoops* loops_ = nullptr;
  absl::Span<const float> scores_;
  absl::Span<const float> maxima_;
  float most_ = 0;
  float scale_ = 0;
  double inverse_temperature_ = 0;
  std::vector<uint32_t> counts_;  // By bucket.
  std::vector<double> sums_;      // The sum of the weights of each bucket.
  size_t sorted_ = kBuckets;      // The bucket whose rows are in rows_.
  std::vector<Row> rows_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SAMPLING_RANKED_SCORES_H_

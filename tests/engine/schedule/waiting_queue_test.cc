#include "engine/schedule/waiting_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace pagoda {
namespace {

const SequenceRun::Windows kWindows{.sizes = {kFullAttention}, .tokens_per_block = 8};

// The result of Head by its contract: each time the least of all remaining samples.
std::vector<const Sample*> PlainHead(std::vector<const Sample*> left, const TenantShares& shares,
                                     size_t count) {
  std::map<std::string, uint64_t> served;
  const auto key = [&](const Sample* sample) {
    const GenerateRequest& request = sample->request->request;
    return std::tuple(-int64_t{request.priority},
                      shares.service(request.tenant) + served[request.tenant],
                      sample->request->number, sample->index);
  };
  std::vector<const Sample*> head;
  while (head.size() < count && !left.empty()) {
    const auto next =
        std::min_element(left.begin(), left.end(),
                         [&](const Sample* a, const Sample* b) { return key(a) < key(b); });
    served[(*next)->request->request.tenant] += (*next)->run.tokens().size();
    head.push_back(*next);
    left.erase(next);
  }
  return head;
}

TEST(WaitingQueueTest, TheHeadIsWhatAPlainSearchFinds) {
  std::mt19937_64 random(5);
  TenantShares shares;
  WaitingQueue queue(&shares);
  std::vector<const Sample*> waiting;
  uint64_t number = 0;
  for (int round = 0; round < 1500; ++round) {
    if (random() % 3 != 0) {
      auto request = std::make_shared<ActiveRequest>();
      request->number = ++number;
      request->request.priority = static_cast<int32_t>(random() % 3) - 1;
      request->request.tenant = "tenant " + std::to_string(random() % 4);
      const uint64_t samples = 1 + random() % 3;
      shares.Enter(request->request.tenant);
      shares.Charge(request->request.tenant, random() % 50);
      for (uint64_t i = 0; i < samples; ++i) {
        auto sample = std::make_unique<Sample>(request, static_cast<uint32_t>(i), kWindows,
                                               std::vector<TokenId>(1 + random() % 40));
        waiting.push_back(sample.get());
        queue.Add(std::move(sample));
      }
    } else if (!waiting.empty()) {
      const auto it = waiting.begin() + static_cast<ptrdiff_t>(random() % waiting.size());
      if (random() % 2 == 0) {
        EXPECT_EQ(queue.Remove(*it).get(), *it);
        waiting.erase(it);
      } else {
        const std::shared_ptr<ActiveRequest> request = (*it)->request;
        // Removed samples no longer exist, so their names are read before.
        std::vector<const Sample*> kept;
        for (const Sample* sample : waiting) {
          if (sample->request != request) kept.push_back(sample);
        }
        EXPECT_EQ(queue.RemoveAll(*request).size(), waiting.size() - kept.size());
        waiting = std::move(kept);
      }
    }
    ASSERT_EQ(queue.size(), waiting.size());
    const bool passes_over = random() % 2 == 0;
    std::vector<const Sample*> counted;
    const auto is_passed_over = [&](const Sample& sample) {
      return passes_over && (sample.request->request.tenant == "tenant 1" || sample.index == 1);
    };
    for (const Sample* sample : waiting) {
      if (!is_passed_over(*sample)) counted.push_back(sample);
    }
    const size_t count = random() % 10;
    const std::vector<Sample*> head = queue.Head(count, is_passed_over);
    ASSERT_EQ(std::vector<const Sample*>(head.begin(), head.end()),
              PlainHead(counted, shares, count));
  }
  std::set<const Sample*> seen;
  queue.ForEach([&](const Sample& sample) { seen.insert(&sample); });
  EXPECT_EQ(seen, std::set<const Sample*>(waiting.begin(), waiting.end()));
}

}  // namespace
}  // namespace pagoda

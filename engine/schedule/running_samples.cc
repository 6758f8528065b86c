#include "engine/schedule/running_samples.h"

#include <algorithm>
#include <utility>

namespace pagoda {
namespace {

bool IsAny(const Sample&) { return true; }

}  // namespace

void RunningSamples::Add(std::unique_ptr<Sample> sample) { samples_.push_back(std::move(sample)); }

RunningSamples::const_iterator RunningSamples::Find(const Sample* sample) const {
  return std::find_if(samples_.begin(), samples_.end(),
                      [&](const auto& running) { return running.get() == sample; });
}

std::unique_ptr<Sample> RunningSamples::Remove(const_iterator at) {
  const auto it = samples_.begin() + (at - samples_.cbegin());
  std::unique_ptr<Sample> removed = std::move(*it);
  samples_.erase(it);
  return removed;
}

void RunningSamples::SortByRank() {
  std::sort(samples_.begin(), samples_.end(),
            [](const auto& a, const auto& b) { return Outranks(*a, *b); });
}

std::vector<Sample*> RunningSamples::Of(const ActiveRequest& request) const {
  std::vector<Sample*> samples;
  for (const std::unique_ptr<Sample>& sample : samples_) {
    if (sample->request.get() == &request) samples.push_back(sample.get());
  }
  return samples;
}

Sample* RunningSamples::Lowest() const { return LowestOf(IsAny); }

Sample* RunningSamples::LowestOf(Filter counts) const {
  Sample* lowest = nullptr;
  for (const std::unique_ptr<Sample>& sample : samples_) {
    if (!counts(*sample)) continue;
    if (lowest == nullptr || Outranks(*lowest, *sample)) lowest = sample.get();
  }
  return lowest;
}

uint64_t RunningSamples::Slots() const { return SlotsOf(IsAny); }

uint64_t RunningSamples::SlotsOf(Filter counts) const {
  uint64_t slots = 0;
  std::set<const ActiveRequest*> searches;
  for (const std::unique_ptr<Sample>& sample : samples_) {
    if (!counts(*sample)) continue;
    if (!sample->is_beam()) {
      ++slots;
    } else if (searches.insert(sample->request.get()).second) {
      slots += sample->request->request.beam_width;
    }
  }
  return slots;
}

uint64_t RunningSamples::TokensOfNextStep() const {
  uint64_t tokens = 0;
  for (const std::unique_ptr<Sample>& sample : samples_) {
    const uint32_t left =
        sample->run.uncomputed() - std::min(sample->run.uncomputed(), sample->num_tokens);
    tokens += std::max(left, 1u);
  }
  return tokens;
}

std::set<const ActiveRequest*> RunningSamples::SearchesThatCopy(Ticket completed) const {
  std::set<const ActiveRequest*> searches;
  for (const std::unique_ptr<Sample>& sample : samples_) {
    if (!sample->is_beam() || !sample->run.is_open() || sample->num_tokens == 0) continue;
    if (sample->run.ready() > completed) searches.insert(sample->request.get());
  }
  return searches;
}

Ticket RunningSamples::FirstCopy(Ticket completed) const {
  Ticket first;
  for (const std::unique_ptr<Sample>& sample : samples_) {
    const Ticket ready = sample->run.ready();
    if (!sample->run.is_open() || ready <= completed) continue;
    if (first == Ticket() || ready < first) first = ready;
  }
  return first;
}

}  // namespace pagoda

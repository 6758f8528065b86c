#include "engine/schedule/waiting_room.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

namespace pagoda {

std::vector<Sample*> WaitingRoom::Head(size_t count) const {
  std::vector<Sample*> left;
  for (const std::unique_ptr<Sample>& sample : samples_) left.push_back(sample.get());
  std::map<std::string, uint64_t> served_here;
  const auto key = [&](const Sample* sample) {
    const GenerateRequest& request = sample->request->request;
    const auto served = served_here.find(request.tenant);
    const uint64_t service =
        shares_.service(request.tenant) + (served == served_here.end() ? 0 : served->second);
    return std::tuple(-int64_t{request.priority}, service, sample->request->number, sample->index);
  };
  std::vector<Sample*> head;
  while (head.size() < count && !left.empty()) {
    const auto next =
        std::min_element(left.begin(), left.end(),
                         [&](const Sample* a, const Sample* b) { return key(a) < key(b); });
    served_here[(*next)->request->request.tenant] += (*next)->run.tokens().size();
    head.push_back(*next);
    left.erase(next);
  }
  return head;
}

std::unique_ptr<Sample> WaitingRoom::Remove(const Sample* sample) {
  const auto it = std::find_if(samples_.begin(), samples_.end(),
                               [&](const auto& waiting) { return waiting.get() == sample; });
  if (it == samples_.end()) return nullptr;
  std::unique_ptr<Sample> removed = std::move(*it);
  samples_.erase(it);
  return removed;
}

std::vector<std::unique_ptr<Sample>> WaitingRoom::RemoveAll(const ActiveRequest* request) {
  std::vector<std::unique_ptr<Sample>> removed;
  for (std::unique_ptr<Sample>& sample : samples_) {
    if (request == nullptr || sample->request.get() == request)
      removed.push_back(std::move(sample));
  }
  std::erase(samples_, nullptr);
  return removed;
}

}  // namespace pagoda

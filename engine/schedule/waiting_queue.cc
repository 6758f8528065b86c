#include "engine/schedule/waiting_queue.h"

#include <tuple>

namespace pagoda {
namespace {

std::pair<uint64_t, uint32_t> KeyOf(const Sample& sample) {
  return {sample.request->number, sample.index};
}

}  // namespace

void WaitingQueue::Add(std::unique_ptr<Sample> sample) {
  const GenerateRequest& request = sample->request->request;
  const auto key = KeyOf(*sample);
  queues_[request.priority][request.tenant].emplace(key, std::move(sample));
  ++size_;
}

std::vector<Sample*> WaitingQueue::Head(
    size_t count, absl::FunctionRef<bool(const Sample&)> is_passed_over) const {
  std::vector<Sample*> head;
  std::map<std::string, uint64_t> served_here;
  for (const auto& [priority, tenants] : queues_) {
    struct Turn {
      uint64_t service;
      Queue::const_iterator next, end;
    };
    std::map<std::string, Turn> turns;
    const auto pass = [&](Turn& turn) {
      while (turn.next != turn.end && is_passed_over(*turn.next->second)) ++turn.next;
      return turn.next != turn.end;
    };
    for (const auto& [tenant, queue] : tenants) {
      Turn turn{0, queue.begin(), queue.end()};
      if (!pass(turn)) continue;
      turn.service = shares_.service(tenant) + served_here[tenant];
      turns.emplace(tenant, turn);
    }
    while (head.size() < count && !turns.empty()) {
      auto least = turns.begin();
      for (auto it = std::next(least); it != turns.end(); ++it) {
        const auto key = [](const Turn& turn) { return std::tie(turn.service, turn.next->first); };
        if (key(it->second) < key(least->second)) least = it;
      }
      Turn& turn = least->second;
      head.push_back(turn.next->second.get());
      const uint64_t tokens = head.back()->run.tokens().size();
      served_here[least->first] += tokens;
      turn.service += tokens;
      ++turn.next;
      if (!pass(turn)) turns.erase(least);
    }
    if (head.size() == count) break;
  }
  return head;
}

void WaitingQueue::ForEach(absl::FunctionRef<void(Sample&)> visit) const {
  for (const auto& [priority, tenants] : queues_) {
    for (const auto& [tenant, queue] : tenants) {
      for (const auto& [key, sample] : queue) visit(*sample);
    }
  }
}

std::unique_ptr<Sample> WaitingQueue::Remove(const Sample* sample) {
  const GenerateRequest& request = sample->request->request;
  const auto tenants = queues_.find(request.priority);
  if (tenants == queues_.end()) return nullptr;
  const auto queue = tenants->second.find(request.tenant);
  if (queue == tenants->second.end()) return nullptr;
  auto node = queue->second.extract(KeyOf(*sample));
  if (node.empty()) return nullptr;
  --size_;
  if (queue->second.empty()) tenants->second.erase(queue);
  if (tenants->second.empty()) queues_.erase(tenants);
  return std::move(node.mapped());
}

std::vector<std::unique_ptr<Sample>> WaitingQueue::RemoveAll(const ActiveRequest& request) {
  std::vector<const Sample*> found;
  const auto tenants = queues_.find(request.request.priority);
  if (tenants == queues_.end()) return {};
  const auto queue = tenants->second.find(request.request.tenant);
  if (queue == tenants->second.end()) return {};
  for (auto it = queue->second.lower_bound({request.number, 0});
       it != queue->second.end() && it->first.first == request.number; ++it) {
    found.push_back(it->second.get());
  }
  std::vector<std::unique_ptr<Sample>> removed;
  for (const Sample* sample : found) removed.push_back(Remove(sample));
  return removed;
}

}  // namespace pagoda

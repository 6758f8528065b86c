#include "engine/text/stop_strings.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"

namespace pagoda {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  stops_.erase(std::remove(stops_.begin(), stops_.end(), ""), stops_.end());
}

size_t StopStrings::UndecidedBytes() const {
  size_t most = 0;
  for (const std::string& stop : stops_) {
    for (size_t size = std::min(stop.size() - 1, kept_.size()); size > most; --size) {
      if (absl::EndsWith(kept_, absl::string_view(stop).substr(0, size))) most = size;
    }
  }
  return most;
}

std::string StopStrings::Add(absl::string_view text) {
  if (stopped_) return "";
  kept_.append(text.data(), text.size());
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, kept_.find(stop));
  stopped_ = first != std::string::npos;
  const size_t certain = stopped_ ? first : kept_.size() - UndecidedBytes();
  std::string result = kept_.substr(0, certain);
  kept_.erase(0, certain);
  if (stopped_) kept_.clear();
  return result;
}

std::string StopStrings::Finish() { return std::exchange(kept_, ""); }

}  // namespace pagoda

#include "engine/text/vocabulary/special_token_finder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/time/clock.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/split/pattern.h"

namespace pagoda {
namespace {

// How many bytes are searched between two readings of the clock.
constexpr size_t kBytesPerLook = 1 << 8;

uint16_t Beginning(char first, char second) {
  return static_cast<uint16_t>(static_cast<uint8_t>(first) << 8 | static_cast<uint8_t>(second));
}

// Appends the part. Adjacent texts become one: a cluster can begin and end with text.
void Append(const SpecialTokenFinder::Part& part, std::vector<SpecialTokenFinder::Part>& parts) {
  if (part.text.empty()) return;
  if (!parts.empty() && !parts.back().token.has_value() && !part.token.has_value()) {
    absl::string_view& text = parts.back().text;
    text = absl::string_view(text.data(), text.size() + part.text.size());
    return;
  }
  parts.push_back(part);
}

}  // namespace

void SpecialTokenFinder::Add(const std::string& text, TokenId id, SpacesBehind spaces) {
  if (text.empty() || !IsUtf8(text)) return;
  if (!by_text_.emplace(text, static_cast<uint32_t>(tokens_.size())).second) return;
  tokens_.push_back({text, id, spaces});
  const auto add = [&](uint16_t beginning) {
    beginnings_.set(beginning);
    std::vector<uint16_t>& lengths = lengths_[beginning];
    const auto length = static_cast<uint16_t>(text.size());
    if (std::find(lengths.begin(), lengths.end(), length) == lengths.end()) {
      lengths.push_back(length);
    }
  };
  if (text.size() > 1) return add(Beginning(text[0], text[1]));
  // A byte is the beginning of a token with any byte behind it, and at the text's end.
  for (int second = 0; second < 256; ++second) add(Beginning(text[0], static_cast<char>(second)));
}

void SpecialTokenFinder::FindAt(absl::string_view text, std::vector<uint32_t>& found) const {
  const uint16_t beginning = Beginning(text[0], text.size() > 1 ? text[1] : '\0');
  if (!beginnings_.test(beginning)) return;
  for (const uint16_t length : lengths_.at(beginning)) {
    if (length > text.size()) continue;
    const auto token = by_text_.find(text.substr(0, length));
    if (token != by_text_.end()) found.push_back(token->second);
  }
}

size_t SpecialTokenFinder::EndOf(const Token& token, absl::string_view text) const {
  size_t end = token.text.size();
  if (token.spaces == SpacesBehind::kDropped) {
    while (end < text.size() && absl::ascii_isspace(static_cast<unsigned char>(text[end]))) ++end;
  }
  return end;
}

void SpecialTokenFinder::CutAt(const Token& token, const Part& part, std::vector<Part>& out) const {
  absl::string_view rest = part.text;
  while (!rest.empty()) {
    const size_t at = rest.find(token.text);
    if (at == absl::string_view::npos) break;
    if (at > 0) out.push_back({rest.substr(0, at), std::nullopt});
    rest.remove_prefix(at);
    out.push_back({rest.substr(0, token.text.size()), token.id});
    rest.remove_prefix(EndOf(token, rest));
  }
  if (!rest.empty()) out.push_back({rest, std::nullopt});
}

absl::Status SpecialTokenFinder::Resolve(absl::string_view text, std::vector<uint32_t> found,
                                         absl::Time deadline, std::vector<Part>& out) const {
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  // The longest first; among equal lengths, the smallest id.
  std::sort(found.begin(), found.end(), [this](uint32_t a, uint32_t b) {
    const size_t size_a = tokens_[a].text.size();
    const size_t size_b = tokens_[b].text.size();
    return size_a != size_b ? size_a > size_b : tokens_[a].id < tokens_[b].id;
  });
  std::vector<Part> parts = {{text, std::nullopt}};
  for (const uint32_t index : found) {
    if (absl::Now() > deadline) return TooLongToSplit();
    std::vector<Part> next;
    for (const Part& part : parts) {
      if (part.token.has_value()) {
        next.push_back(part);
      } else {
        CutAt(tokens_[index], part, next);
      }
    }
    parts = std::move(next);
  }
  for (const Part& part : parts) Append(part, out);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SpecialTokenFinder::Part>> SpecialTokenFinder::Split(
    absl::string_view text, absl::Time deadline) const {
  std::vector<Part> parts;
  std::vector<uint32_t> found;  // In the cluster: tokens that overlap one another.
  size_t done = 0;
  size_t cluster = 0;
  size_t cluster_end = 0;
  const auto end_cluster = [&] {
    if (cluster_end == done) return absl::OkStatus();
    Append({text.substr(done, cluster - done), std::nullopt}, parts);
    done = cluster_end;
    const absl::string_view overlapping = text.substr(cluster, cluster_end - cluster);
    absl::Status status = Resolve(overlapping, std::move(found), deadline, parts);
    found.clear();
    return status;
  };
  for (size_t at = 0; at < text.size(); ++at) {
    if (at % kBytesPerLook == 0 && absl::Now() > deadline) return TooLongToSplit();
    if (at == cluster_end) {
      if (absl::Status status = end_cluster(); !status.ok()) return status;
    }
    const size_t known = found.size();
    FindAt(text.substr(at), found);
    if (known == found.size()) continue;
    if (known == 0) cluster = at;
    for (size_t i = known; i < found.size(); ++i) {
      cluster_end = std::max(cluster_end, at + EndOf(tokens_[found[i]], text.substr(at)));
    }
    // Long runs of the same tokens: `found` has each a few times at most.
    if (found.size() > 4 * tokens_.size() + 64) {
      std::sort(found.begin(), found.end());
      found.erase(std::unique(found.begin(), found.end()), found.end());
    }
  }
  if (absl::Status status = end_cluster(); !status.ok()) return status;
  Append({text.substr(done), std::nullopt}, parts);
  return parts;
}

}  // namespace pagoda

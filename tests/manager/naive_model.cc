#include "tests/manager/naive_model.h"

#include <algorithm>
#include <limits>
#include <set>

namespace pagoda {

Reason NaiveModel::CheckCapacity(uint64_t reserved) const {
  return reserved > uint64_t{capacity_} * tokens_per_block_ ? Reason::kInvalidCount : Reason::kNone;
}

NaiveModel::Path NaiveModel::PathOf(const Sequence& sequence, uint32_t tokens) const {
  return {sequence.salt, {sequence.tokens.begin(), sequence.tokens.begin() + tokens}};
}

std::vector<NaiveModel::ContentPtr> NaiveModel::MatchFull(const std::string& salt,
                                                          const Tokens& tokens) const {
  std::vector<ContentPtr> match;
  for (size_t end = tokens_per_block_; end + 1 <= tokens.size(); end += tokens_per_block_) {
    const auto it = cached_.find({salt, {tokens.begin(), tokens.begin() + end}});
    if (it == cached_.end()) break;
    match.push_back(it->second);
  }
  return match;
}

std::vector<NaiveModel::Path> NaiveModel::Sources(const std::string& salt,
                                                  const Tokens& tokens) const {
  const size_t from = MatchFull(salt, tokens).size() * tokens_per_block_;
  std::vector<Path> sources;
  size_t most = 1;
  for (const auto& [path, content] : cached_) {
    const Tokens& other = path.second;
    if (path.first != salt || other.size() <= from || other.size() > from + tokens_per_block_) {
      continue;
    }
    size_t common = 0;
    while (common < other.size() && common + 1 < tokens.size() && other[common] == tokens[common]) {
      ++common;
    }
    if (common < from + most) continue;
    if (common > from + most) sources.clear();
    most = common - from;
    sources.push_back(path);
  }
  for (const Path& path : sources) {
    if (path.second.size() == from + most) return {path};
  }
  return sources;
}

bool NaiveModel::HasChildren(const Content& content) const {
  const auto& [salt, tokens] = content.path;
  return std::any_of(cached_.begin(), cached_.end(), [&](const auto& entry) {
    const auto& [other_salt, other] = entry.first;
    return other_salt == salt && other.size() > tokens.size() &&
           std::equal(tokens.begin(), tokens.end(), other.begin()) &&
           tokens.size() % tokens_per_block_ == 0;
  });
}

// Blocks that sequences and clients hold privately: everything outside the cache.
uint32_t NaiveModel::PrivateBlocks() const {
  uint32_t blocks = raw_;
  std::set<ContentPtr> orphans;
  for (const auto& [name, sequence] : sequences_) {
    blocks += Blocks(sequence.reserved) - static_cast<uint32_t>(sequence.published.size()) +
              sequence.duplicates;
    for (const ContentPtr& content : sequence.published) {
      const auto it = cached_.find(content->path);
      if (it == cached_.end() || it->second != content) orphans.insert(content);
    }
  }
  return blocks + static_cast<uint32_t>(orphans.size());
}

NaiveModel::Counts NaiveModel::counts() const {
  Counts counts;
  counts.active = PrivateBlocks();
  for (const auto& [path, content] : cached_) {
    ++(content->holders > 0 ? counts.active : counts.cached);
  }
  counts.free = capacity_ - counts.active - counts.cached;
  return counts;
}

std::vector<std::pair<NaiveModel::Path, uint8_t>> NaiveModel::Cached() const {
  std::vector<std::pair<Path, uint8_t>> paths;
  for (const auto& [path, content] : cached_) paths.emplace_back(path, content->priority);
  return paths;
}

std::vector<NaiveModel::SequenceName> NaiveModel::Running() const {
  std::vector<SequenceName> names;
  for (const auto& [name, sequence] : sequences_) names.push_back(name);
  return names;
}

const NaiveModel::Tokens* NaiveModel::TokensOf(SequenceName name) const {
  const auto it = sequences_.find(name);
  return it == sequences_.end() ? nullptr : &it->second.tokens;
}

uint32_t NaiveModel::Match(const std::string& salt, const Tokens& tokens) const {
  const auto matched = static_cast<uint32_t>(MatchFull(salt, tokens).size()) * tokens_per_block_;
  const std::vector<Path> sources = Sources(salt, tokens);
  if (sources.empty()) return matched;
  const Tokens& source = sources.front().second;
  const auto end = static_cast<ptrdiff_t>(std::min(source.size(), tokens.size() - 1));
  return static_cast<uint32_t>(
      std::mismatch(source.begin(), source.begin() + end, tokens.begin()).first - source.begin());
}

void NaiveModel::Remove(const ContentPtr& content) {
  const Path path = content->path;
  cached_.erase(path);
  // The parent is evicted next, if it is evictable now.
  const size_t parent_size = (path.second.size() - 1) / tokens_per_block_ * tokens_per_block_;
  const auto parent =
      cached_.find({path.first, {path.second.begin(), path.second.begin() + parent_size}});
  if (parent_size > 0 && parent != cached_.end() && parent->second->holders == 0 &&
      !HasChildren(*parent->second)) {
    parent->second->age = --oldest_;
  }
}

// Evicts until `blocks` blocks are free.
void NaiveModel::FreeOneSlot(uint32_t blocks) {
  while (counts().free < blocks) {
    ContentPtr victim;
    for (const auto& [path, content] : cached_) {
      if (content->holders > 0 || HasChildren(*content)) continue;
      if (victim == nullptr ||
          std::pair(content->priority, content->age) < std::pair(victim->priority, victim->age)) {
        victim = content;
      }
    }
    Remove(victim);
    ++evictions_;
  }
}

void NaiveModel::LetGo(const ContentPtr& content) {
  if (--content->holders == 0 && !HasChildren(*content)) content->age = ++newest_;
}

std::optional<uint8_t> NaiveModel::WishFor(const Sequence& sequence, uint32_t first_token) const {
  return first_token < sequence.prompt ? sequence.wish.prompt : sequence.wish.generated;
}

Reason NaiveModel::Add(SequenceName name, const std::string& salt, const Tokens& tokens,
                       uint32_t reserved, const Wish& wish, const std::optional<Path>& source,
                       uint32_t* matched) {
  if (sequences_.contains(name)) return Reason::kSequenceExists;
  if (tokens.empty()) return Reason::kInvalidCount;
  const std::vector<ContentPtr> full = MatchFull(salt, tokens);
  const auto whole = static_cast<uint32_t>(full.size());
  *matched = Match(salt, tokens);
  const auto wanted = static_cast<uint32_t>(reserved == 0 ? tokens.size() : reserved);
  if (CheckCapacity(std::max<uint64_t>({wanted, *matched, tokens.size()})) != Reason::kNone) {
    return Reason::kInvalidCount;
  }
  // Capacity: the free or evictable blocks, less those that the match will hold.
  const Counts now = counts();
  uint32_t available = now.free + now.cached;
  for (const ContentPtr& content : full) available -= content->holders == 0 ? 1 : 0;

  // The part of a block is copied. It is taken over if it is a tail that matched whole, or if there
  // is no space for a copy. It is not worth a refusal.
  ContentPtr part = source.has_value() ? cached_.at(*source) : nullptr;
  bool takes_over = false;
  if (part != nullptr) {
    const bool evictable = part->holders == 0;
    const bool whole_tail = part->path.second.size() == *matched;
    const uint32_t needed = Blocks(std::max(wanted, *matched)) - whole;
    const bool can_take = evictable && !HasChildren(*part);
    const bool can_copy = needed + (evictable ? 1 : 0) <= available;
    takes_over = can_take && (whole_tail || !can_copy) && needed <= available;
    if (!can_copy && !takes_over) part = nullptr;
  }
  if (part == nullptr) *matched = whole * tokens_per_block_;
  const uint32_t final_reserved = std::max(wanted, *matched);
  const uint32_t needed = Blocks(final_reserved) - whole;
  if (needed > available) return Reason::kBlocksExhausted;

  Sequence sequence{.salt = salt,
                    .tokens = tokens,
                    .wish = wish,
                    .prompt = static_cast<uint32_t>(tokens.size()),
                    .computed = *matched,
                    .reserved = whole * tokens_per_block_,
                    .published = full};
  for (const ContentPtr& content : full) {
    ++content->holders;
    content->priority = wish.prompt.value_or(content->priority);
  }
  if (takes_over) {
    if (part->priority != 35) sequence.taken_over = {whole, part->priority};
    Remove(part);
    sequence.reserved = *matched;
    ++taken_over_;
  } else if (part != nullptr) {
    ++part->holders;
    ++copies_;
  }
  sequences_[name] = sequence;
  FreeOneSlot(needed - (takes_over ? 1 : 0));
  sequences_[name].reserved = final_reserved;
  if (part != nullptr && !takes_over) LetGo(part);
  return Reason::kNone;
}

Reason NaiveModel::Reserve(SequenceName name, uint32_t count) {
  const auto it = sequences_.find(name);
  if (it == sequences_.end()) return Reason::kUnknownSequence;
  if (count == 0) return Reason::kInvalidCount;
  const uint64_t reserved = uint64_t{it->second.reserved} + count;
  if (CheckCapacity(reserved) != Reason::kNone) return Reason::kInvalidCount;
  const uint32_t needed = Blocks(reserved) - Blocks(it->second.reserved);
  if (needed > counts().free + counts().cached) return Reason::kBlocksExhausted;
  FreeOneSlot(needed);
  it->second.reserved = static_cast<uint32_t>(reserved);
  return Reason::kNone;
}

Reason NaiveModel::Commit(SequenceName name, const Tokens& tokens, uint32_t computed) {
  const auto it = sequences_.find(name);
  if (it == sequences_.end()) return Reason::kUnknownSequence;
  Sequence& sequence = it->second;
  const size_t token_count = sequence.tokens.size() + tokens.size();
  if (!tokens.empty() && token_count > sequence.reserved) return Reason::kReservationExceeded;
  if (computed != 0 && computed < sequence.computed) return Reason::kComputedBackwards;
  if (computed > token_count) return Reason::kComputedBeyondTokens;
  if (computed > sequence.reserved) return Reason::kReservationExceeded;
  sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
  sequence.computed = std::max(sequence.computed, computed);
  Publish(sequence);
  return Reason::kNone;
}

Reason NaiveModel::Append(SequenceName name, const Tokens& tokens, uint32_t computed) {
  const auto it = sequences_.find(name);
  if (it == sequences_.end()) return Reason::kUnknownSequence;
  const Sequence& sequence = it->second;
  const size_t token_count = sequence.tokens.size() + tokens.size();
  if (computed != 0 && computed < sequence.computed) return Reason::kComputedBackwards;
  if (computed > token_count) return Reason::kComputedBeyondTokens;
  if (token_count > sequence.reserved) {
    const Reason reason = Reserve(name, static_cast<uint32_t>(token_count - sequence.reserved));
    if (reason != Reason::kNone) return reason;
  }
  return Commit(name, tokens, computed);
}

std::optional<uint8_t> NaiveModel::TakenOver(const Sequence& sequence, size_t index) const {
  if (!sequence.taken_over.has_value() || sequence.taken_over->first != index) return std::nullopt;
  return sequence.taken_over->second;
}

// Whether the last block of `longer` begins with that of `shorter`, below the same parent, and is
// longer.
bool NaiveModel::BeginsWith(const Path& longer, const Path& shorter) const {
  const Tokens& tokens = shorter.second;
  return longer.first == shorter.first && longer.second.size() > tokens.size() &&
         (longer.second.size() - 1) / tokens_per_block_ ==
             (tokens.size() - 1) / tokens_per_block_ &&
         std::equal(tokens.begin(), tokens.end(), longer.second.begin());
}

// Caches the sequence's block `index`. Evictable tails that it begins with leave.
NaiveModel::ContentPtr NaiveModel::Store(const Sequence& sequence, const Path& path, size_t index,
                                         bool* is_new) {
  const auto found = cached_.find(path);
  const auto first_token = static_cast<uint32_t>(index * tokens_per_block_);
  const std::optional<uint8_t> wish = WishFor(sequence, first_token);
  const std::optional<uint8_t> had = TakenOver(sequence, index);
  *is_new = found == cached_.end();
  if (!*is_new) {
    ContentPtr content = found->second;
    content->priority = wish.value_or(std::max(content->priority, had.value_or(0)));
    return content;
  }
  auto content = std::make_shared<Content>(Content{.path = path});
  content->priority = wish.value_or(had.value_or(content->priority));
  for (auto it = cached_.begin(); it != cached_.end();) {
    const auto shorter = it++;
    if (shorter->second->holders > 0 || !BeginsWith(path, shorter->first)) continue;
    if (!wish.has_value()) {
      content->priority = std::max(content->priority, shorter->second->priority);
    }
    cached_.erase(shorter);
  }
  cached_.emplace(path, content);
  return content;
}

void NaiveModel::Publish(Sequence& sequence) {
  if (sequence.after_reset) return;
  while ((sequence.published.size() + 1) * tokens_per_block_ <= sequence.computed) {
    const size_t index = sequence.published.size();
    const auto end = static_cast<uint32_t>((index + 1) * tokens_per_block_);
    bool is_new = false;
    const ContentPtr content = Store(sequence, PathOf(sequence, end), index, &is_new);
    if (!is_new) ++sequence.duplicates;
    ++content->holders;
    sequence.published.push_back(content);
  }
}

Reason NaiveModel::Free(SequenceName name) {
  const auto it = sequences_.find(name);
  if (it == sequences_.end()) return Reason::kUnknownSequence;
  const Sequence sequence = it->second;
  const uint32_t tail = sequence.computed % tokens_per_block_;
  const Path tail_path = PathOf(sequence, tail == 0 ? 0 : sequence.computed);
  sequences_.erase(it);
  if (!sequence.after_reset && tail != 0) {
    const size_t index = sequence.computed / tokens_per_block_;
    // Among several, the first in the order of their tokens.
    const auto longer = std::find_if(cached_.begin(), cached_.end(), [&](const auto& entry) {
      return BeginsWith(entry.first, tail_path);
    });
    if (!cached_.contains(tail_path) && longer != cached_.end()) {
      const ContentPtr& content = longer->second;
      const std::optional<uint8_t> wish = WishFor(sequence, sequence.computed - tail);
      const uint8_t had = wish.value_or(TakenOver(sequence, index).value_or(0));
      content->priority = std::max(content->priority, had);
      if (content->holders == 0 && !HasChildren(*content)) content->age = ++newest_;
      ++tails_in_longer_;
    } else {
      bool is_new = false;
      // Existing content was computed again: it is as recent.
      Store(sequence, tail_path, index, &is_new)->age = ++newest_;
    }
  }
  for (size_t i = sequence.published.size(); i-- > 0;) LetGo(sequence.published[i]);
  return Reason::kNone;
}

Reason NaiveModel::TakeRaw(uint32_t count) {
  if (count == 0 || count > capacity_) return Reason::kInvalidCount;
  if (count > counts().free + counts().cached) return Reason::kBlocksExhausted;
  FreeOneSlot(count);
  raw_ += count;
  return Reason::kNone;
}

void NaiveModel::Reset() {
  if (cached_.empty()) return;
  cached_.clear();
  for (auto& [name, sequence] : sequences_) sequence.after_reset = true;
}

}  // namespace pagoda

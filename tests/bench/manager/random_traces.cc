#include "tests/bench/manager/random_traces.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "clients/pagoda_plan/trace/portable_math.h"
#include "clients/pagoda_plan/trace/random_draws.h"

namespace pagoda::bench {
namespace {

constexpr uint32_t kTokensPerBlock = 16;
constexpr double kMeanReplyTokens = 100;
constexpr size_t kMostChatBlocks = 250;

using Prompt = std::vector<uint64_t>;

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  RandomTrace Make() {
    const uint64_t blocks = OneOf<uint64_t>({120'000, 250'000, 400'000});
    const uint64_t what = random_.Below(kKinds + 2);
    if (what == kKinds) {
      Phases(blocks);
    } else if (what == kKinds + 1) {
      Mixture(blocks);
    } else {
      RequestKind(what, blocks);
    }
    return {.about = std::move(about_),
            .trace = {.tokens_per_block = kTokensPerBlock, .requests = Timed()}};
  }

 private:
  static constexpr uint64_t kKinds = 4;

  template <class T>
  T OneOf(std::initializer_list<T> values) {
    return *(values.begin() + random_.Below(values.size()));
  }
  Prompt New(uint64_t blocks) {
    Prompt ids;
    while (ids.size() < blocks) ids.push_back(next_id_++);
    return ids;
  }
  // At least one block.
  Prompt NewOfMean(double blocks) {
    return New(1 + static_cast<uint64_t>(random_.Exponential(blocks)));
  }
  static Prompt Joined(Prompt prefix, const Prompt& rest) {
    prefix.insert(prefix.end(), rest.begin(), rest.end());
    return prefix;
  }
  void Request(Prompt prompt) {
    blocks_ += prompt.size();
    prompts_.push_back(std::move(prompt));
  }
  template <class... Parts>
  void Tell(const Parts&... parts) {
    absl::StrAppend(&about_, about_.empty() ? "" : "; ", parts...);
  }

  // Each of these adds requests until `blocks` blocks are requested in all.
  void RequestKind(uint64_t kind, uint64_t blocks) {
    if (kind == 0) return Documents(blocks);
    if (kind == 1) return Chats(blocks);
    if (kind == 2) return Cycle(blocks);
    Branches(blocks);
  }

  void Documents(uint64_t blocks) {
    const auto count = OneOf<size_t>({200, 1'000, 5'000});
    const double exponent = 0.4 + 0.9 * random_.Uniform();
    const auto length = OneOf<double>({4, 16, 64});
    const auto question = OneOf<uint64_t>({1, 2, 8});
    const auto replaced_every = OneOf<uint64_t>({0, 0, 10, 100});
    Tell(count, " documents of ", length, ", Zipf ", exponent,
         replaced_every == 0 ? "" : absl::StrCat(", one replaced every ", replaced_every));
    const ZipfRanks ranks(count, exponent);
    std::vector<Prompt> documents(count);
    for (uint64_t i = 1; blocks_ < blocks; ++i) {
      Prompt& document = documents[ranks.Draw(random_)];
      if (document.empty()) document = NewOfMean(length);
      Request(Joined(document, New(1 + random_.Below(question))));
      if (replaced_every != 0 && i % replaced_every == 0) documents[random_.Below(count)].clear();
    }
  }

  void Chats(uint64_t blocks) {
    enum Next : uint8_t { kLongestWaiting, kOneOfTheLast, kAny, kHeavyTailed };
    constexpr const char* kNames[] = {"the longest waiting", "one of the last", "any",
                                      "mostly one of the last"};
    const auto count = OneOf<size_t>({20, 100, 400, 1'500});
    const double goes_on = 0.3 + 0.67 * random_.Uniform();
    const auto first = OneOf<double>({1, 4, 20});
    const auto turn = OneOf<double>({1, 3, 8});
    const auto next = OneOf<Next>({kLongestWaiting, kOneOfTheLast, kAny, kHeavyTailed});
    const Prompt system = New(OneOf<uint64_t>({0, 1, 4}));
    Tell(count, " chats of ", first, " and ", turn, " a turn, go on by ", goes_on, ", next ",
         kNames[next], ", system prompt of ", system.size());
    std::vector<Prompt> live;
    while (blocks_ < blocks) {
      if (live.size() < count) {
        live.push_back(Joined(system, NewOfMean(first)));
        Request(live.back());
        continue;
      }
      double back = 0;
      if (next == kOneOfTheLast) back = random_.Exponential(3);
      if (next == kAny) back = static_cast<double>(random_.Below(count));
      // A Pareto distribution with the exponent 0.6.
      if (next == kHeavyTailed) back = PortableExp(random_.Exponential(1 / 0.6)) - 1;
      if (next == kLongestWaiting) back = static_cast<double>(count);
      const auto at = static_cast<std::ptrdiff_t>(
          count - 1 - static_cast<size_t>(std::min(back, static_cast<double>(count - 1))));
      Prompt chat = std::move(live[static_cast<size_t>(at)]);
      live.erase(live.begin() + at);
      if (chat.size() >= kMostChatBlocks || !random_.Happens(goes_on)) continue;
      live.push_back(Joined(std::move(chat), NewOfMean(turn)));
      Request(live.back());
    }
  }

  void Cycle(uint64_t blocks) {
    const auto count = OneOf<size_t>({50, 300, 2'000});
    const auto length = OneOf<double>({2, 10, 40});
    const auto out_of_order = OneOf<double>({0, 0.1, 0.5});
    const auto others = OneOf<double>({0, 0.2, 0.5});
    Tell("a cycle of ", count, " documents of ", length, ", ", out_of_order, " out of order, ",
         others, " new ones");
    std::vector<Prompt> documents(count);
    for (Prompt& document : documents) document = NewOfMean(length);
    for (size_t at = 0; blocks_ < blocks;) {
      if (random_.Happens(others)) {
        Request(New(static_cast<uint64_t>(length)));
      } else if (random_.Happens(out_of_order)) {
        Request(Joined(documents[random_.Below(count)], New(1)));
      } else {
        Request(Joined(documents[at++ % count], New(1)));
      }
    }
  }

  void Branches(uint64_t blocks) {
    const auto count = OneOf<size_t>({5, 50, 300});
    const auto hot_for = OneOf<uint64_t>({10, 100, 1'000});
    Tell("branches of ", count, " prefixes, each hot for up to ", hot_for);
    std::vector<Prompt> roots(count);
    for (Prompt& root : roots) root = New(5 + random_.Below(56));
    while (blocks_ < blocks) {
      const Prompt& root = roots[random_.Below(count)];
      const uint64_t attempts = 1 + random_.Below(hot_for);
      for (uint64_t i = 0; i < attempts && blocks_ < blocks; ++i) {
        Prompt prompt = Joined(root, New(1 + random_.Below(10)));
        const uint64_t steps = 1 + random_.Below(6);
        for (uint64_t step = 0; step < steps; ++step) {
          Request(prompt);
          prompt = Joined(std::move(prompt), New(1 + random_.Below(4)));
        }
      }
    }
  }

  void Phases(uint64_t blocks) {
    const auto count = OneOf<uint64_t>({2, 4, 10, 30});
    const std::array<uint64_t, 2> kinds = {random_.Below(kKinds), random_.Below(kKinds)};
    Tell(count, " phases");
    for (uint64_t i = 0; i < count; ++i) RequestKind(kinds[i % 2], (i + 1) * blocks / count);
  }

  // The requests of each keep their order.
  void Mixture(uint64_t blocks) {
    Tell("at once");
    RequestKind(random_.Below(2), blocks / 2);  // Documents or chats.
    std::vector<Prompt> some = std::move(prompts_);
    prompts_.clear();
    RequestKind(random_.Below(kKinds), blocks);
    std::vector<Prompt> others = std::move(prompts_);
    prompts_.clear();
    for (size_t i = 0, k = 0; i < some.size() || k < others.size();) {
      const uint64_t left = some.size() - i + others.size() - k;
      prompts_.push_back(std::move(random_.Below(left) < some.size() - i ? some[i++]  //
                                                                         : others[k++]));
    }
  }

  std::vector<TraceRequest> Timed() {
    const double mean_gap_ms = 1000.0 / (1 + 7 * random_.Uniform());
    double time_ms = 0;
    std::vector<TraceRequest> requests;
    for (Prompt& prompt : prompts_) {
      time_ms += random_.Exponential(mean_gap_ms);
      requests.push_back(
          {.timestamp_ms = std::llround(time_ms),
           .hash_ids = std::move(prompt),
           .output_tokens = 1 + static_cast<uint32_t>(random_.Exponential(kMeanReplyTokens))});
    }
    return requests;
  }

  RandomDraws random_;
  uint64_t next_id_ = 0;
  uint64_t blocks_ = 0;
  std::vector<Prompt> prompts_;
  std::string about_;
};

}  // namespace

RandomTrace MakeRandomTrace(uint64_t seed) { return Generator(seed).Make(); }

}  // namespace pagoda::bench

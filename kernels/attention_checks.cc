#include "kernels/attention_checks.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/counted.h"
#include "kernels/shape_checks.h"

namespace pagoda::kernels {
namespace {

// The first block of which the sequence's queries can see a key. The window has passed earlier
// blocks, and they are gone. A sink keeps the first ones.
uint64_t FirstSeenBlock(const PagedAttentionParams& params, size_t sequence) {
  const AttentionMask& mask = params.mask;
  if (!mask.causal || mask.window_tokens == 0 || mask.sink_tokens != 0) return 0;
  const int64_t queries =
      int64_t{params.query_starts[sequence + 1]} - params.query_starts[sequence];
  const int64_t first_query = params.context_lengths[sequence] - queries;
  const int64_t first_key = std::max<int64_t>(0, first_query + 1 - int64_t{mask.window_tokens});
  return static_cast<uint64_t>(first_key) / params.kv.tokens_per_block;
}

absl::Status CheckTable(const PagedAttentionParams& params, size_t sequence) {
  const uint64_t context = static_cast<uint64_t>(params.context_lengths[sequence]);
  const uint64_t blocks = (context + params.kv.tokens_per_block - 1) / params.kv.tokens_per_block;
  if (blocks > params.block_table_stride) {
    return InvalidArgument("block_tables has ", Counted(params.block_table_stride, "entry"),
                           " a sequence; the context of ", Counted(context, "token"),
                           " of sequence ", sequence, " needs ", blocks);
  }
  const int32_t* table = params.block_tables.data() + sequence * params.block_table_stride;
  for (uint64_t i = FirstSeenBlock(params, sequence); i < blocks; ++i) {
    if (table[i] < 0 || static_cast<uint32_t>(table[i]) >= params.kv.num_slots) {
      return InvalidArgument("block_tables[", sequence, "][", i, "] is ", table[i],
                             ", not a slot of the pool's ", params.kv.num_slots);
    }
  }
  return absl::OkStatus();
}

// Walks a plan's items as a kernel does, and compares them with the params' lengths.
class PlanWalk {
 public:
  PlanWalk(const AttentionPlan& plan, const PagedAttentionParams& params)
      : plan_(plan), params_(params) {}

  bool Fits() {
    for (size_t i = 0; i < plan_.items.size();) {
      SkipSequencesWithoutQueries();
      if (sequence_ == params_.context_lengths.size()) return false;
      const AttentionItem& item = plan_.items[i];
      const uint32_t parts = PartsOf(item);
      if (parts == 0 || parts > plan_.items.size() - i) return false;
      if (!FitsQueries(item) || !FitsKeys(i, parts)) return false;
      query_ += item.num_queries;
      i += parts;
    }
    SkipSequencesWithoutQueries();
    return sequence_ == params_.context_lengths.size() && merge_ == plan_.merges.size() &&
           partials_ == plan_.num_partials && FitsWorkers();
  }

 private:
  void SkipSequencesWithoutQueries() {
    while (sequence_ < params_.context_lengths.size() &&
           query_ == static_cast<uint32_t>(params_.query_starts[sequence_ + 1])) {
      ++sequence_;
    }
  }

  // 1 for a whole item, 0 for an item without a merge.
  uint32_t PartsOf(const AttentionItem& item) {
    if (item.partial == AttentionItem::kWhole) return 1;
    if (merge_ == plan_.merges.size()) return 0;
    const AttentionMerge& merge = plan_.merges[merge_++];
    const bool fits = merge.first_query == item.first_query &&
                      merge.num_queries == item.num_queries && merge.partial == partials_;
    partials_ += uint64_t{merge.num_parts} * merge.num_queries;
    return fits ? merge.num_parts : 0;
  }

  bool FitsQueries(const AttentionItem& item) const {
    const auto end = static_cast<uint32_t>(params_.query_starts[sequence_ + 1]);
    return item.sequence == sequence_ && item.first_query == query_ && item.num_queries > 0 &&
           item.num_queries <= end - query_;
  }

  // Checks the keys of the items from i on that are parts of the same queries: ascending, up to the
  // last visible key, without a visible key between two parts.
  bool FitsKeys(size_t i, uint32_t parts) const {
    const AttentionItem& first = plan_.items[i];
    const int64_t context = params_.context_lengths[sequence_];
    const int64_t first_position = context - params_.query_starts[sequence_ + 1] + query_;
    const int64_t last_position = first_position + first.num_queries - 1;
    int64_t end_key = 0;
    for (uint32_t part = 0; part < parts; ++part) {
      const AttentionItem& item = plan_.items[i + part];
      if (item.sequence != first.sequence || item.first_query != first.first_query ||
          item.num_queries != first.num_queries || item.end_key < item.first_key ||
          item.first_key < end_key) {
        return false;
      }
      if (first.partial != AttentionItem::kWhole &&
          item.partial != uint64_t{first.partial} + uint64_t{part} * first.num_queries) {
        return false;
      }
      if (item.first_key > end_key && MaySee(params_.mask, first_position, last_position, end_key,
                                             int64_t{item.first_key} - 1)) {
        return false;
      }
      end_key = item.end_key;
    }
    return end_key == (params_.mask.causal ? last_position + 1 : context);
  }

  bool FitsWorkers() const {
    const std::vector<uint64_t>& starts = plan_.worker_starts;
    return starts.size() >= 2 && starts.front() == 0 &&
           starts.back() == plan_.items.size() * plan_.num_kv_heads &&
           std::is_sorted(starts.begin(), starts.end());
  }

  const AttentionPlan& plan_;
  const PagedAttentionParams& params_;
  size_t sequence_ = 0;
  uint32_t query_ = 0;     // A row of the batch.
  size_t merge_ = 0;       // The next merge.
  uint64_t partials_ = 0;  // The next partial row.
};

}  // namespace

absl::Status CheckPlan(const AttentionPlan& plan, const PagedAttentionParams& params) {
  if (plan.num_kv_heads != params.kv.num_kv_heads) {
    return InvalidArgument("plan was made for ", plan.num_kv_heads, " KV heads, not ",
                           params.kv.num_kv_heads);
  }
  if (!PlanWalk(plan, params).Fits()) {
    return InvalidArgument(
        "plan was made for other lengths or another mask than those of ",
        Counted(params.context_lengths.size(), "sequence"), " with ",
        Counted(static_cast<uint64_t>(params.query_starts.back()), "query token"));
  }
  return absl::OkStatus();
}

absl::Status CheckHostArguments(const PagedAttentionParams& params) {
  if (absl::Status status = CheckShapes(params); !status.ok()) return status;
  if (params.query_starts[0] != 0) {
    return InvalidArgument("query_starts begins with ", params.query_starts[0], ", not 0");
  }
  for (size_t s = 0; s < params.context_lengths.size(); ++s) {
    const int64_t queries = int64_t{params.query_starts[s + 1]} - params.query_starts[s];
    if (queries < 0) {
      return InvalidArgument("query_starts descends at sequence ", s, ": ", params.query_starts[s],
                             ", then ", params.query_starts[s + 1]);
    }
    if (params.context_lengths[s] < queries) {
      return InvalidArgument("context_lengths[", s, "] is ", params.context_lengths[s],
                             ", shorter than its ", queries, " query tokens");
    }
    if (absl::Status status = CheckTable(params, s); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace pagoda::kernels

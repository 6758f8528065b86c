#include "engine/model/layers/adapter_backend.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace pagoda {
namespace {

// The first rows and columns of the memory.
RowsView ViewOf(const GrowingRows& memory, uint64_t rows, uint64_t cols) {
  return {.data = memory.view().data, .stride = cols, .rows = rows, .cols = cols};
}

}  // namespace

AdapterBackend::AdapterBackend(std::unique_ptr<Backend> inner, std::vector<AdapterWeights> adapters)
    : ForwardingBackend(std::move(inner)), adapters_(std::move(adapters)), rows_(adapters_.size()) {
  for (const AdapterWeights& adapter : adapters_) {
    for (const auto& [matrix, change] : adapter.changes) {
      widths_.inputs = std::max(widths_.inputs, change.down->inputs());
      widths_.ranks = std::max(widths_.ranks, change.down->outputs());
      for (const AdapterWeights::Part& part : change.parts) {
        widths_.outputs = std::max(widths_.outputs, part.up->outputs());
      }
    }
  }
}

std::string AdapterBackend::description() const {
  return absl::StrCat(inner().description(), ", ", adapters_.size(),
                      adapters_.size() == 1 ? " adapter" : " adapters");
}

void AdapterBackend::BeginStep(const ModelInput& input, const ModelConfig& config) {
  for (std::vector<uint32_t>& rows : rows_) rows.clear();
  for (size_t s = 0; s < input.adapters.size(); ++s) {
    if (input.adapters[s] == kNoAdapter) continue;
    PAGODA_CHECK(input.adapters[s].value() < rows_.size(), "the input's adapters exist");
    std::vector<uint32_t>& rows = rows_[input.adapters[s].value()];
    for (int32_t row = input.query_starts[s]; row < input.query_starts[s + 1]; ++row) {
      rows.push_back(static_cast<uint32_t>(row));
    }
  }
  uint64_t most = 0;
  for (const std::vector<uint32_t>& rows : rows_) most = std::max<uint64_t>(most, rows.size());
  status_ = Resize(most);
  inner().BeginStep(input, config);
}

absl::Status AdapterBackend::Resize(uint64_t rows) {
  absl::Status status = taken_.Resize(inner(), rows, widths_.inputs);
  status.Update(ranks_.Resize(inner(), rows, widths_.ranks));
  status.Update(change_.Resize(inner(), rows, widths_.outputs));
  return status;
}

void AdapterBackend::Multiply(const LinearWeights& weights, const RowsView& input,
                              const RowsView& output) {
  inner().Multiply(weights, input, output);
  if (!status_.ok()) return;
  for (size_t i = 0; i < adapters_.size(); ++i) {
    if (rows_[i].empty()) continue;
    const auto found = adapters_[i].changes.find(&weights);
    if (found != adapters_[i].changes.end()) AddChange(found->second, rows_[i], input, output);
  }
}

bool AdapterBackend::CanFuse(const FusedProduct& product) const {
  const bool has_adapters =
      std::any_of(rows_.begin(), rows_.end(), [](const auto& rows) { return !rows.empty(); });
  return !has_adapters && inner().CanFuse(product);
}

void AdapterBackend::AddChange(const AdapterWeights::Change& change,
                               absl::Span<const uint32_t> rows, const RowsView& input,
                               const RowsView& output) {
  const RowsView taken = ViewOf(taken_, rows.size(), input.cols).As(input.type);
  const RowsView ranks = ViewOf(ranks_, rows.size(), change.down->outputs());
  inner().TakeRows(rows, input, taken);
  inner().Multiply(*change.down, taken, ranks);
  for (const AdapterWeights::Part& part : change.parts) {
    const RowsView added = ViewOf(change_, rows.size(), part.up->outputs());
    inner().Multiply(*part.up, ranks.Columns(part.first_rank, part.up->inputs()), added);
    factors_.assign(rows.size(), part.scale);
    inner().AddRows(rows, factors_, added, output.Columns(part.first_output, added.cols));
  }
}

absl::StatusOr<absl::Span<const float>> AdapterBackend::EndStep(float soft_cap,
                                                                const RowsView& logits) {
  absl::StatusOr<absl::Span<const float>> ended = inner().EndStep(soft_cap, logits);
  if (!status_.ok()) return status_;
  return ended;
}

absl::StatusOr<ModelOutput> AdapterBackend::EndStepWithDraws(float soft_cap,
                                                             const RowsView& logits) {
  absl::StatusOr<ModelOutput> ended = inner().EndStepWithDraws(soft_cap, logits);
  if (!status_.ok()) return status_;
  return ended;
}

}  // namespace pagoda

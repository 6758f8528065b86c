#include "server/config/tier_size_key.h"

#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/byte_size.h"

namespace pagoda::server {
namespace {

std::optional<uint32_t> BlocksFrom(const YAML::Node& node, uint32_t min_blocks) {
  uint32_t blocks = 0;
  if (!node.IsScalar() || !absl::SimpleAtoi(node.Scalar(), &blocks) || blocks < min_blocks ||
      blocks > kMaxBlocks) {
    return std::nullopt;
  }
  return blocks;
}

std::optional<TierBudget> ListFrom(const YAML::Node& node, uint32_t min_blocks) {
  BlockBudget budget;
  for (const YAML::Node& element : node) {
    const std::optional<uint32_t> blocks = BlocksFrom(element, min_blocks);
    if (!blocks.has_value()) return std::nullopt;
    budget.blocks.push_back(*blocks);
  }
  if (budget.blocks.empty()) return std::nullopt;
  return budget;
}

std::optional<TierBudget> ShareFrom(absl::string_view percent) {
  double value = 0;
  // This form of the comparison also refuses NaN.
  if (!absl::SimpleAtod(percent, &value) || !(value > 0 && value <= 100)) return std::nullopt;
  return FractionBudget{.fraction = value / 100};
}

// A number without a unit is blocks.
std::optional<TierBudget> BytesFrom(absl::string_view text) {
  const std::optional<uint64_t> bytes = ParseByteSizeWithUnit(text);
  if (!bytes.has_value() || *bytes == 0) return std::nullopt;
  return ByteBudget{*bytes};
}

std::optional<TierBudget> BudgetFrom(const YAML::Node& node, uint32_t min_blocks) {
  if (node.IsSequence()) return ListFrom(node, min_blocks);
  if (!node.IsScalar()) return std::nullopt;
  if (const auto blocks = BlocksFrom(node, min_blocks)) return BlockBudget{{*blocks}};
  absl::string_view text = node.Scalar();
  return absl::ConsumeSuffix(&text, "%") ? ShareFrom(text) : BytesFrom(text);
}

struct Printer {
  YAML::Emitter& out;

  void operator()(const BlockBudget& budget) const {
    if (budget.blocks.size() == 1) {
      out << budget.blocks.front();
    } else {
      out << YAML::Flow << budget.blocks;
    }
  }
  void operator()(const ByteBudget& budget) const { out << ByteSizeTextWithUnit(budget.bytes); }
  void operator()(const FractionBudget& budget) const {
    out << absl::StrCat(budget.fraction * 100, "%");
  }
};

}  // namespace

ConfigKey TierSizeKey(std::string name, TierBudget* field, uint32_t min_blocks) {
  auto read = [=](const YAML::Node& node) {
    std::optional<TierBudget> budget = BudgetFrom(node, min_blocks);
    if (!budget.has_value()) {
      return WrongValue(
          node, name,
          absl::StrCat(min_blocks, " to ", kMaxBlocks, " blocks, a list of them by window, ",
                       kByteSizeForms, ", or a share of the free memory such as 50%"));
    }
    *field = *std::move(budget);
    return absl::OkStatus();
  };
  return {name, read, [field](YAML::Emitter& out) { std::visit(Printer{out}, *field); }};
}

}  // namespace pagoda::server

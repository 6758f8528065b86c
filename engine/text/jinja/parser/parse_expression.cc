// Expressions of Parser: the operators, from the weakest to the strongest.
#include <optional>
#include <utility>

#include "engine/text/jinja/parser/parser.h"

namespace pagoda::jinja {
namespace {

using ExpressionKind = Expression::Kind;

std::optional<Operator> ComparisonOf(const Token& token) {
  constexpr std::pair<absl::string_view, Operator> kOperators[] = {
      {"==", Operator::kEqual},     {"!=", Operator::kNotEqual}, {"<", Operator::kLess},
      {"<=", Operator::kLessEqual}, {">", Operator::kGreater},   {">=", Operator::kGreaterEqual}};
  for (const auto& [text, op] : kOperators) {
    if (token.Is(text)) return op;
  }
  return std::nullopt;
}

ExpressionPtr Pair(ExpressionPtr node, ExpressionPtr left, ExpressionPtr right) {
  node->children.push_back(std::move(left));
  node->children.push_back(std::move(right));
  return node;
}

}  // namespace

ExpressionPtr Parser::ParseTuple(Conditionals conditionals,
                                 std::initializer_list<absl::string_view> ends,
                                 bool in_parentheses) {
  const int line = Now().line;
  ExpressionPtr tuple = Make(ExpressionKind::kTuple, line);
  const auto at_end = [&] {
    const Token& now = Now();
    if (now.kind == Token::Kind::kPrintEnd || now.kind == Token::Kind::kStatementEnd ||
        now.Is(")")) {
      return true;
    }
    for (const absl::string_view end : ends) {
      if (now.IsName(end)) return true;
    }
    return false;
  };
  bool is_tuple = false;
  while (ok() && !at_end()) {
    tuple->children.push_back(ParseExpression(conditionals));
    if (!TakeIf(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (tuple->children.size() == 1) return std::move(tuple->children[0]);
    if (!in_parentheses) Fail("expected an expression instead of " + Describe(Now()));
  }
  return Done(std::move(tuple));
}

ExpressionPtr Parser::ParseExpression(Conditionals conditionals) {
  Deepening deeper(*this);
  return conditionals == Conditionals::kAllowed ? ParseConditional() : ParseOr();
}

ExpressionPtr Parser::ParseConditional() {
  const int line = Now().line;
  ExpressionPtr node = ParseOr();
  while (ok() && TakeIfName("if")) {
    ExpressionPtr conditional = Make(ExpressionKind::kConditional, line);
    conditional->children.push_back(std::move(node));
    conditional->children.push_back(ParseOr());
    conditional->children.push_back(nullptr);
    if (TakeIfName("else")) {
      Deepening deeper(*this);
      conditional->children.back() = ParseConditional();
    }
    node = Done(std::move(conditional));
  }
  return node;
}

ExpressionPtr Parser::ParseOr() {
  const int line = Now().line;
  ExpressionPtr node = ParseAnd();
  while (ok() && TakeIfName("or")) {
    node = Done(Pair(Make(ExpressionKind::kOr, line), std::move(node), ParseAnd()));
  }
  return node;
}

ExpressionPtr Parser::ParseAnd() {
  const int line = Now().line;
  ExpressionPtr node = ParseNot();
  while (ok() && TakeIfName("and")) {
    node = Done(Pair(Make(ExpressionKind::kAnd, line), std::move(node), ParseNot()));
  }
  return node;
}

ExpressionPtr Parser::ParseNot() {
  if (!Now().IsName("not")) return ParseComparison();
  Deepening deeper(*this);
  ExpressionPtr node = Make(ExpressionKind::kNot, Take().line);
  node->children.push_back(ParseNot());
  return Done(std::move(node));
}

ExpressionPtr Parser::ParseComparison() {
  const int line = Now().line;
  ExpressionPtr first = ParseSum();
  ExpressionPtr node = Make(ExpressionKind::kComparison, line);
  while (ok()) {
    if (const std::optional<Operator> op = ComparisonOf(Now())) {
      Take();
      node->operators.push_back(*op);
    } else if (Now().IsName("in")) {
      Take();
      node->operators.push_back(Operator::kIn);
    } else if (Now().IsName("not") && Next().IsName("in")) {
      Take();
      Take();
      node->operators.push_back(Operator::kNotIn);
    } else {
      break;
    }
    if (node->children.empty()) node->children.push_back(std::move(first));
    node->children.push_back(ParseSum());
  }
  return node->children.empty() ? std::move(first) : Done(std::move(node));
}

ExpressionPtr Parser::ParseSum() {
  const int line = Now().line;
  ExpressionPtr node = ParseConcat();
  while (ok() && (Now().Is("+") || Now().Is("-"))) {
    ExpressionPtr sum = Make(ExpressionKind::kBinary, line);
    sum->operators = {Take().text == "+" ? Operator::kAdd : Operator::kSubtract};
    node = Done(Pair(std::move(sum), std::move(node), ParseConcat()));
  }
  return node;
}

ExpressionPtr Parser::ParseConcat() {
  const int line = Now().line;
  ExpressionPtr first = ParseProduct();
  if (!Now().Is("~")) return first;
  ExpressionPtr node = Make(ExpressionKind::kConcat, line);
  node->children.push_back(std::move(first));
  while (ok() && TakeIf("~")) node->children.push_back(ParseProduct());
  return Done(std::move(node));
}

ExpressionPtr Parser::ParseProduct() {
  const int line = Now().line;
  ExpressionPtr node = ParsePower();
  while (ok() && (Now().Is("*") || Now().Is("/") || Now().Is("//") || Now().Is("%"))) {
    const std::string op = Take().text;
    ExpressionPtr product = Make(ExpressionKind::kBinary, line);
    product->operators = {op == "*"    ? Operator::kMultiply
                          : op == "/"  ? Operator::kDivide
                          : op == "//" ? Operator::kFloorDivide
                                       : Operator::kModulo};
    node = Done(Pair(std::move(product), std::move(node), ParsePower()));
  }
  return node;
}

ExpressionPtr Parser::ParsePower() {
  const int line = Now().line;
  ExpressionPtr node = ParseUnary(Filters::kAllowed);
  while (ok() && TakeIf("**")) {
    ExpressionPtr power = Make(ExpressionKind::kBinary, line);
    power->operators = {Operator::kPower};
    node = Done(Pair(std::move(power), std::move(node), ParseUnary(Filters::kAllowed)));
  }
  return node;
}

ExpressionPtr Parser::ParseUnary(Filters filters) {
  ExpressionPtr node;
  if (Now().Is("-") || Now().Is("+")) {
    Deepening deeper(*this);
    const Token sign = Take();
    node =
        Make(sign.text == "-" ? ExpressionKind::kNegative : ExpressionKind::kPositive, sign.line);
    node->children.push_back(ParseUnary(Filters::kLeftOut));
    node = Done(std::move(node));
  } else {
    node = ParsePrimary();
  }
  node = ParsePostfix(std::move(node));
  return filters == Filters::kAllowed ? ParseFiltersAndTests(std::move(node)) : std::move(node);
}

}  // namespace pagoda::jinja

// The parts of Parser that every rule uses.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/text/jinja/parser/parser.h"

namespace pagoda::jinja {

namespace {

using TokenKind = Token::Kind;

}  // namespace

const Token& Parser::Next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }

Token Parser::Take() {
  Token token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::TakeIf(absl::string_view op) {
  if (!Now().Is(op)) return false;
  Take();
  return true;
}

bool Parser::TakeIfName(absl::string_view name) {
  if (!Now().IsName(name)) return false;
  Take();
  return true;
}

std::string Parser::Describe(const Token& token) const {
  switch (token.kind) {
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kText:
      return "text";
    case TokenKind::kPrintBegin:
      return "'{{'";
    case TokenKind::kPrintEnd:
      return "'}}'";
    case TokenKind::kStatementBegin:
      return "'{%'";
    case TokenKind::kStatementEnd:
      return "'%}'";
    default:
      return absl::StrCat("'", token.text, "'");
  }
}

void Parser::Expect(absl::string_view op) {
  if (!TakeIf(op)) Fail(absl::StrCat("expected '", op, "' instead of ", Describe(Now())));
}

void Parser::ExpectKind(TokenKind kind, absl::string_view what) {
  if (Now().kind == kind) {
    Take();
  } else {
    Fail(absl::StrCat("expected ", what, " instead of ", Describe(Now())));
  }
}

std::string Parser::ExpectName() {
  if (Now().kind == TokenKind::kName) return Take().text;
  Fail(absl::StrCat("expected a name instead of ", Describe(Now())));
  return "";
}

void Parser::Fail(absl::string_view what) {
  status_.Update(BadTemplate(Now().line, what));
  at_ = tokens_.size() - 1;
}

ExpressionPtr Parser::Make(Expression::Kind kind, int line) {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = line;
  return node;
}

ExpressionPtr Parser::Done(ExpressionPtr node) {
  const auto count = [&](const ExpressionPtr& child) {
    if (child != nullptr) node->depth = std::max(node->depth, child->depth + 1);
  };
  for (const ExpressionPtr& child : node->children) count(child);
  for (const ExpressionPtr& child : node->arguments.positional) count(child);
  for (const auto& [name, child] : node->arguments.named) count(child);
  count(node->arguments.more_positional);
  count(node->arguments.more_named);
  if (node->depth > kMaxExpressionDepth) Fail("an expression nests too deeply");
  return node;
}

absl::StatusOr<Body> Parser::ParseTemplate() {
  Body body = ParseBody({});
  if (ok() && Now().kind != TokenKind::kEnd) Fail(absl::StrCat("unexpected ", Describe(Now())));
  if (!ok()) return status_;
  return body;
}

}  // namespace pagoda::jinja

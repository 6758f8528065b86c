// Statements of Parser.
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/text/jinja/parser/parser.h"

namespace pagoda::jinja {
namespace {

using StatementKind = Statement::Kind;
using TokenKind = Token::Kind;

// Gives a variable a value while it lives.
template <typename T>
class Within {
 public:
  Within(T& variable, T value) : variable_(variable), before_(std::exchange(variable, value)) {}
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;
  ~Within() { variable_ = before_; }

 private:
  T& variable_;
  const T before_;
};

}  // namespace

Body Parser::ParseBody(std::initializer_list<absl::string_view> ends) {
  Within<int> deeper(statement_depth_, statement_depth_ + 1);
  if (statement_depth_ > kMaxStatementDepth) Fail("statements nest too deeply");
  Body body;
  while (ok() && Now().kind != TokenKind::kEnd) {
    auto node = std::make_unique<Statement>();
    node->line = Now().line;
    if (Now().kind == TokenKind::kText) {
      node->text = Take().text;
    } else if (Now().kind == TokenKind::kPrintBegin) {
      Take();
      node->kind = StatementKind::kPrint;
      node->expression = ParseTuple(Conditionals::kAllowed);
      ExpectKind(TokenKind::kPrintEnd, "'}}'");
    } else {
      for (const absl::string_view end : ends) {
        if (Next().IsName(end)) {
          Take();  // The caller takes the name.
          return body;
        }
      }
      ExpectKind(TokenKind::kStatementBegin, "'{%'");
      node = ParseStatement();
    }
    body.push_back(std::move(node));
  }
  if (ok() && ends.size() > 0) {
    Fail(absl::StrCat("the template ends where '", *(ends.end() - 1), "' is missing"));
  }
  return body;
}

Body Parser::ParseScope(absl::string_view end) {
  Within<bool> branch(in_branch_, false);
  Body body = ParseBody({end});
  Take();
  EndTag();
  return body;
}

std::unique_ptr<Statement> Parser::ParseStatement() {
  auto node = std::make_unique<Statement>();
  node->line = Now().line;
  if (Now().kind != TokenKind::kName) {
    Fail(absl::StrCat("expected a tag's name instead of ", Describe(Now())));
    return node;
  }
  const Token tag = Take();
  if (tag.text == "if") {
    ParseIf(*node);
  } else if (tag.text == "for") {
    ParseFor(*node);
  } else if (tag.text == "set") {
    ParseSet(*node);
  } else if (tag.text == "macro") {
    ParseMacro(*node);
  } else if (tag.text == "call") {
    ParseCall(*node);
  } else if (tag.text == "filter") {
    ParseFilterBlock(*node);
  } else if (tag.text == "with") {
    ParseWith(*node);
  } else if (tag.text == "generation") {
    node->kind = StatementKind::kScope;
    EndTag();
    Within<int> no_loops(loops_, 0);
    node->body = ParseScope("endgeneration");
  } else if (tag.text == "break" || tag.text == "continue") {
    node->kind = tag.text == "break" ? StatementKind::kBreak : StatementKind::kContinue;
    if (loops_ == 0) Fail(absl::StrCat("'", tag.text, "' outside of a loop"));
    EndTag();
  } else {
    --at_;
    Fail(absl::StrCat("unknown or misplaced tag '", tag.text, "'"));
  }
  return node;
}

void Parser::ParseIf(Statement& node) {
  node.kind = StatementKind::kIf;
  Within<bool> branch(in_branch_, true);
  bool is_last = false;
  ExpressionPtr condition = ParseTuple(Conditionals::kLeftOut);
  while (ok()) {
    EndTag();
    Body body = is_last ? ParseBody({"endif"}) : ParseBody({"elif", "else", "endif"});
    node.branches.push_back({std::move(condition), std::move(body)});
    condition = nullptr;
    if (TakeIfName("endif")) break;
    is_last = TakeIfName("else");
    if (!is_last && TakeIfName("elif")) condition = ParseTuple(Conditionals::kLeftOut);
  }
  EndTag();
}

void Parser::ParseFor(Statement& node) {
  node.kind = StatementKind::kFor;
  node.target = ParseTarget(/*with_fields=*/false);
  if (!TakeIfName("in")) Fail(absl::StrCat("expected 'in' instead of ", Describe(Now())));
  node.expression = ParseTuple(Conditionals::kLeftOut, {"recursive"});
  Within<bool> branch(in_branch_, false);
  if (TakeIfName("if")) node.condition = ParseExpression();
  node.recursive = TakeIfName("recursive");
  EndTag();
  {
    // A recursive loop is a function: `break` inside ends this loop in either case.
    Within<int> loops(loops_, loops_ + 1);
    node.body = ParseBody({"else", "endfor"});
  }
  if (TakeIfName("else")) {
    EndTag();
    node.otherwise = ParseBody({"endfor"});
  }
  Take();
  EndTag();
}

void Parser::ParseSet(Statement& node) {
  node.target = ParseTarget(/*with_fields=*/true);
  if (TakeIf("=")) {
    node.kind = StatementKind::kSet;
    node.expression = ParseTuple(Conditionals::kAllowed);
    return EndTag();
  }
  node.kind = StatementKind::kSetBlock;
  while (ok() && TakeIf("|")) node.expression = ParseFilter(std::move(node.expression));
  EndTag();
  node.body = ParseScope("endset");
}

void Parser::ParseSignature(MacroSyntax& macro) {
  Expect("(");
  while (ok() && !Now().Is(")")) {
    macro.parameters.push_back(ExpectName());
    if (TakeIf("=")) {
      macro.defaults.push_back(ParseExpression());
    } else if (!macro.defaults.empty()) {
      Fail("a parameter without a default behind one with a default");
    }
    if (!TakeIf(",")) break;
  }
  Expect(")");
}

void Parser::ParseMacroBody(MacroSyntax& macro, absl::string_view end) {
  EndTag();
  Within<int> no_loops(loops_, 0);
  macros_.push_back(&macro);
  macro.body = ParseScope(end);
  macros_.pop_back();
}

void Parser::ParseMacro(Statement& node) {
  node.kind = StatementKind::kMacro;
  node.macro.name = ExpectName();
  ParseSignature(node.macro);
  ParseMacroBody(node.macro, "endmacro");
}

void Parser::ParseCall(Statement& node) {
  node.kind = StatementKind::kCall;
  node.macro.name = "caller";
  if (Now().Is("(")) ParseSignature(node.macro);
  node.expression = ParseExpression();
  if (ok() && node.expression->kind != Expression::Kind::kCall) Fail("expected a call");
  ParseMacroBody(node.macro, "endcall");
}

void Parser::ParseFilterBlock(Statement& node) {
  node.kind = StatementKind::kFilter;
  node.expression = ParseFilter(nullptr);
  while (ok() && TakeIf("|")) node.expression = ParseFilter(std::move(node.expression));
  EndTag();
  node.body = ParseScope("endfilter");
}

void Parser::ParseWith(Statement& node) {
  node.kind = StatementKind::kWith;
  while (ok() && Now().kind != TokenKind::kStatementEnd) {
    ExpressionPtr target = ParseOneTarget(/*with_fields=*/false);
    Expect("=");
    node.with.emplace_back(std::move(target), ParseExpression());
    if (!TakeIf(",")) break;
  }
  EndTag();
  node.body = ParseScope("endwith");
}

ExpressionPtr Parser::ParseTarget(bool with_fields) {
  const int line = Now().line;
  ExpressionPtr first = ParseOneTarget(with_fields);
  if (!Now().Is(",")) return first;
  ExpressionPtr tuple = Make(Expression::Kind::kTuple, line);
  tuple->children.push_back(std::move(first));
  while (ok() && TakeIf(",")) {
    if (Now().kind != TokenKind::kName && !Now().Is("(")) break;
    if (Now().IsName("in")) break;
    tuple->children.push_back(ParseOneTarget(with_fields));
  }
  return Done(std::move(tuple));
}

ExpressionPtr Parser::ParseOneTarget(bool with_fields) {
  Deepening deeper(*this);
  if (TakeIf("(")) {
    ExpressionPtr tuple = ParseTarget(with_fields);
    Expect(")");
    return tuple;
  }
  ExpressionPtr node = Make(Expression::Kind::kName, Now().line);
  for (const char* reserved : {"true", "True", "false", "False", "none", "None"}) {
    if (Now().IsName(reserved)) Fail(absl::StrCat("cannot assign to '", reserved, "'"));
  }
  node->name = ExpectName();
  if (with_fields && TakeIf(".")) {
    node->kind = Expression::Kind::kNamespaceField;
    node->field = ExpectName();
  }
  return node;
}

}  // namespace pagoda::jinja

// Expressions of Parser: literals, calls, subscripts, filters and tests.
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/text/jinja/evaluator/filters.h"
#include "engine/text/jinja/evaluator/tests.h"
#include "engine/text/jinja/parser/parser.h"

namespace pagoda::jinja {
namespace {

using ExpressionKind = Expression::Kind;

// Whether a token can begin the argument of a test without parentheses.
bool BeginsArgument(const Token& token) {
  switch (token.kind) {
    case Token::Kind::kName:
      return !token.IsName("else") && !token.IsName("or") && !token.IsName("and");
    case Token::Kind::kString:
    case Token::Kind::kInteger:
    case Token::Kind::kFloat:
      return true;
    default:
      return token.Is("(") || token.Is("[") || token.Is("{");
  }
}

}  // namespace

ExpressionPtr Parser::ParsePrimary() {
  const Token& now = Now();
  const int line = now.line;
  ExpressionPtr node = Make(ExpressionKind::kConstant, line);
  switch (now.kind) {
    case Token::Kind::kName: {
      const std::string name = Take().text;
      if (name == "true" || name == "True" || name == "false" || name == "False") {
        node->constant = Value::Of(name == "true" || name == "True");
      } else if (name == "none" || name == "None") {
        node->constant = Value::None();
      } else {
        node->kind = ExpressionKind::kName;
        node->name = name;
        for (MacroSyntax* macro : macros_) {
          macro->uses_varargs |= name == "varargs";
          macro->uses_kwargs |= name == "kwargs";
          macro->uses_caller |= name == "caller";
        }
      }
      return node;
    }
    case Token::Kind::kString: {
      std::string text;
      while (Now().kind == Token::Kind::kString) text += Take().text;
      node->constant = Value::OfConstant(std::move(text));
      return node;
    }
    case Token::Kind::kInteger:
    case Token::Kind::kFloat:
      node->constant = Take().number;
      return node;
    default:
      break;
  }
  if (TakeIf("(")) {
    node = ParseTuple(Conditionals::kAllowed, {}, /*in_parentheses=*/true);
    Expect(")");
    return node;
  }
  if (now.Is("[")) return ParseListLiteral();
  if (now.Is("{")) return ParseDictLiteral();
  Fail(absl::StrCat("unexpected ", Describe(now)));
  return node;
}

ExpressionPtr Parser::ParseListLiteral() {
  ExpressionPtr node = Make(ExpressionKind::kList, Take().line);
  while (ok() && !Now().Is("]")) {
    node->children.push_back(ParseExpression());
    if (!TakeIf(",")) break;
  }
  Expect("]");
  return Done(std::move(node));
}

ExpressionPtr Parser::ParseDictLiteral() {
  ExpressionPtr node = Make(ExpressionKind::kDict, Take().line);
  while (ok() && !Now().Is("}")) {
    node->children.push_back(ParseExpression());
    Expect(":");
    node->children.push_back(ParseExpression());
    if (!TakeIf(",")) break;
  }
  Expect("}");
  return Done(std::move(node));
}

ExpressionPtr Parser::ParsePostfix(ExpressionPtr node) {
  while (ok()) {
    const int line = Now().line;
    if (Now().Is("(")) {
      ExpressionPtr call = Make(ExpressionKind::kCall, line);
      call->children.push_back(std::move(node));
      call->arguments = ParseArguments();
      node = Done(std::move(call));
    } else if (TakeIf(".")) {
      ExpressionPtr part = Make(
          Now().kind == Token::Kind::kInteger ? ExpressionKind::kItem : ExpressionKind::kAttribute,
          line);
      part->children.push_back(std::move(node));
      if (part->kind == ExpressionKind::kItem) {
        part->children.push_back(ParsePrimary());
      } else {
        part->name = ExpectName();
      }
      node = Done(std::move(part));
    } else if (TakeIf("[")) {
      node = ParseSubscript(std::move(node));
    } else {
      break;
    }
  }
  return node;
}

ExpressionPtr Parser::ParseSubscript(ExpressionPtr node) {
  const int line = Now().line;
  const auto at_part_end = [&] { return Now().Is(":") || Now().Is("]") || Now().Is(","); };
  ExpressionPtr begin = Now().Is(":") ? nullptr : ParseExpression();
  if (Now().Is(":")) {
    ExpressionPtr slice = Make(ExpressionKind::kSlice, line);
    slice->children.push_back(std::move(node));
    slice->children.push_back(std::move(begin));
    for (int part = 0; part < 2; ++part) {
      const bool has = TakeIf(":") && !at_part_end();
      slice->children.push_back(has ? ParseExpression() : nullptr);
    }
    if (Now().Is(",")) Fail("a slice in a tuple is not supported");
    Expect("]");
    return Done(std::move(slice));
  }
  ExpressionPtr item = Make(ExpressionKind::kItem, line);
  item->children.push_back(std::move(node));
  if (Now().Is(",")) {
    ExpressionPtr tuple = Make(ExpressionKind::kTuple, line);
    tuple->children.push_back(std::move(begin));
    while (ok() && TakeIf(",")) {
      if (!Now().Is("]")) tuple->children.push_back(ParseExpression());
    }
    begin = Done(std::move(tuple));
  }
  item->children.push_back(std::move(begin));
  Expect("]");
  return Done(std::move(item));
}

ExpressionPtr Parser::ParseFiltersAndTests(ExpressionPtr node) {
  while (ok()) {
    if (TakeIf("|")) {
      node = ParseFilter(std::move(node));
    } else if (TakeIfName("is")) {
      node = ParseTest(std::move(node));
    } else if (Now().Is("(")) {
      // Calls the result of a filter or test.
      ExpressionPtr call = Make(ExpressionKind::kCall, Now().line);
      call->children.push_back(std::move(node));
      call->arguments = ParseArguments();
      node = Done(std::move(call));
    } else {
      break;
    }
  }
  return node;
}

ExpressionPtr Parser::ParseFilter(ExpressionPtr node) {
  ExpressionPtr filter = Make(ExpressionKind::kFilter, Now().line);
  filter->name = ExpectName();
  while (ok() && TakeIf(".")) absl::StrAppend(&filter->name, ".", ExpectName());
  filter->children.push_back(std::move(node));
  if (Now().Is("(")) filter->arguments = ParseArguments();
  CheckKnown(*filter);
  return Done(std::move(filter));
}

ExpressionPtr Parser::ParseTest(ExpressionPtr node) {
  ExpressionPtr test = Make(ExpressionKind::kTest, Now().line);
  const bool negated = TakeIfName("not");
  test->name = ExpectName();
  while (ok() && TakeIf(".")) absl::StrAppend(&test->name, ".", ExpectName());
  test->children.push_back(std::move(node));
  if (Now().Is("(")) {
    test->arguments = ParseArguments();
  } else if (BeginsArgument(Now())) {
    if (Now().IsName("is")) Fail("tests cannot be chained with 'is'");
    Deepening deeper(*this);
    test->arguments.positional.push_back(ParsePostfix(ParsePrimary()));
  }
  CheckKnown(*test);
  if (!negated) return Done(std::move(test));
  ExpressionPtr negation = Make(ExpressionKind::kNot, test->line);
  negation->children.push_back(Done(std::move(test)));
  return Done(std::move(negation));
}

void Parser::CheckKnown(Expression& node) {
  if (!ok() || in_branch_) return;
  const bool is_filter = node.kind == ExpressionKind::kFilter;
  if (is_filter ? FindFilter(node.name) != nullptr : FindTest(node.name) != nullptr) return;
  Fail(absl::StrCat("no ", is_filter ? "filter" : "test", " is named '", node.name, "'"));
}

ArgumentSyntax Parser::ParseArguments() {
  Deepening deeper(*this);
  ArgumentSyntax arguments;
  Expect("(");
  while (ok() && !Now().Is(")")) {
    const bool has_more = arguments.more_positional != nullptr || arguments.more_named != nullptr;
    if (TakeIf("*")) {
      if (has_more) Fail("a second * argument");
      arguments.more_positional = ParseExpression();
    } else if (TakeIf("**")) {
      if (arguments.more_named != nullptr) Fail("a second ** argument");
      arguments.more_named = ParseExpression();
    } else if (Now().kind == Token::Kind::kName && Next().Is("=")) {
      if (arguments.more_named != nullptr) Fail("an argument behind ** arguments");
      std::string name = Take().text;
      Take();
      arguments.named.emplace_back(std::move(name), ParseExpression());
    } else {
      if (has_more || !arguments.named.empty()) Fail("an argument behind named ones");
      arguments.positional.push_back(ParseExpression());
    }
    if (!TakeIf(",")) break;
  }
  Expect(")");
  return arguments;
}

}  // namespace pagoda::jinja

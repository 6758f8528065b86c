// Parses the tokens of a template.
#ifndef PAGODA_ENGINE_TEXT_JINJA_PARSER_PARSER_H_
#define PAGODA_ENGINE_TEXT_JINJA_PARSER_PARSER_H_

#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/jinja/parser/token.h"
#include "engine/text/jinja/values/syntax.h"

namespace pagoda::jinja {

// How deep expressions, and statements, can be within each other.
inline constexpr int kMaxExpressionDepth = 200;
inline constexpr int kMaxStatementDepth = 50;

// Keeps the first error and then stands at the end of the tokens, so that every loop ends. What is
// parsed after an error has no meaning, but is never null where the grammar wants an expression.
class Parser {
 public:
  // `tokens` ends with kEnd.
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // Errors: INVALID_CHECKPOINT, with the line.
  absl::StatusOr<Body> ParseTemplate();

 private:
  enum class Conditionals : uint8_t { kAllowed, kLeftOut };

  // One level deeper within expressions, while it lives.
  class Deepening {
   public:
    explicit Deepening(Parser& parser) : parser_(parser) {
      if (++parser_.expression_depth_ > kMaxExpressionDepth) {
        parser_.Fail("an expression nests too deeply");
      }
    }
    Deepening(const Deepening&) = delete;
    Deepening& operator=(const Deepening&) = delete;
    ~Deepening() { --parser_.expression_depth_; }

   private:
    Parser& parser_;
  };

  // parser_tokens.cc
  const Token& Now() const { return tokens_[at_]; }
  const Token& Next() const;
  Token Take();
  bool TakeIf(absl::string_view op);
  bool TakeIfName(absl::string_view name);
  void Expect(absl::string_view op);
  void ExpectKind(Token::Kind kind, absl::string_view what);
  std::string ExpectName();
  bool ok() const { return status_.ok(); }
  void Fail(absl::string_view what);
  ExpressionPtr Make(Expression::Kind kind, int line);
  // Checks the depth of a finished node.
  ExpressionPtr Done(ExpressionPtr node);
  std::string Describe(const Token& token) const;

  // parse_expression.cc: one function for each level of precedence.
  ExpressionPtr ParseTuple(Conditionals conditionals,
                           std::initializer_list<absl::string_view> ends = {},
                           bool in_parentheses = false);
  ExpressionPtr ParseExpression(Conditionals conditionals = Conditionals::kAllowed);
  ExpressionPtr ParseConditional();
  ExpressionPtr ParseOr();
  ExpressionPtr ParseAnd();
  ExpressionPtr ParseNot();
  ExpressionPtr ParseComparison();
  ExpressionPtr ParseSum();
  ExpressionPtr ParseConcat();
  ExpressionPtr ParseProduct();
  ExpressionPtr ParsePower();
  enum class Filters : uint8_t { kAllowed, kLeftOut };
  ExpressionPtr ParseUnary(Filters filters);

  // parse_primary.cc
  ExpressionPtr ParsePrimary();
  ExpressionPtr ParseListLiteral();
  ExpressionPtr ParseDictLiteral();
  ExpressionPtr ParsePostfix(ExpressionPtr node);
  ExpressionPtr ParseSubscript(ExpressionPtr node);
  ExpressionPtr ParseFiltersAndTests(ExpressionPtr node);
  // `node` is null in blocks.
  ExpressionPtr ParseFilter(ExpressionPtr node);
  ExpressionPtr ParseTest(ExpressionPtr node);
  ArgumentSyntax ParseArguments();
  void CheckKnown(Expression& node);

  // parse_statement.cc
  Body ParseBody(std::initializer_list<absl::string_view> ends);
  // A body of its own scope, without the loops around it.
  Body ParseScope(absl::string_view end);
  std::unique_ptr<Statement> ParseStatement();
  void ParseIf(Statement& node);
  void ParseFor(Statement& node);
  void ParseSet(Statement& node);
  void ParseMacro(Statement& node);
  void ParseCall(Statement& node);
  void ParseFilterBlock(Statement& node);
  void ParseWith(Statement& node);
  void ParseSignature(MacroSyntax& macro);
  void ParseMacroBody(MacroSyntax& macro, absl::string_view end);
  void EndTag() { ExpectKind(Token::Kind::kStatementEnd, "the end of the tag"); }
  ExpressionPtr ParseTarget(bool with_fields);
  ExpressionPtr ParseOneTarget(bool with_fields);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  absl::Status status_;
  int expression_depth_ = 0;
  int statement_depth_ = 0;
  int loops_ = 0;                     // The loops that `break` can end.
  bool in_branch_ = false;            // An unknown filter is an error only if it runs.
  std::vector<MacroSyntax*> macros_;  // Around the current token.
};

}  // namespace pagoda::jinja

#endif  // PAGODA_ENGINE_TEXT_JINJA_PARSER_PARSER_H_

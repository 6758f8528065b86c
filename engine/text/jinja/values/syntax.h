// The syntax tree of a template. Immutable after parsing.
#ifndef PAGODA_ENGINE_TEXT_JINJA_VALUES_SYNTAX_H_
#define PAGODA_ENGINE_TEXT_JINJA_VALUES_SYNTAX_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/jinja/values/value.h"

namespace pagoda::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

// What stands in the parentheses of a call, filter or test.
struct ArgumentSyntax {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional;  // *x
  ExpressionPtr more_named;       // **x
};

struct Expression {
  enum class Kind : uint8_t {
    kConstant,
    kName,
    kList,
    kTuple,
    kDict,       // Children: key, value, key, value, ...
    kAttribute,  // children[0].name
    kItem,       // children[0][children[1]]
    kSlice,      // children[0][children[1]:children[2]:children[3]]; parts can be null.
    kCall,       // children[0](arguments)
    kFilter,     // children[0] | name(arguments); in `set` and `filter` blocks without a child.
    kTest,       // children[0] is name(arguments)
    kNot,
    kNegative,
    kPositive,
    kBinary,      // children[0] operators[0] children[1]
    kComparison,  // children[0] operators[0] children[1] operators[1] children[2] ...
    kAnd,
    kOr,
    kConcat,
    kConditional,    // children: value, condition, other value (can be null).
    kNamespaceField  // Only as a target: name.field
  };

  Kind kind = Kind::kConstant;
  int line = 1;
  int depth = 1;  // The depth of the tree below this.
  Value constant;
  std::string name;
  std::string field;
  std::vector<Operator> operators;
  std::vector<ExpressionPtr> children;
  ArgumentSyntax arguments;
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

struct MacroSyntax {
  std::string name;  // "caller" for the body of a call block.
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // The defaults of the last parameters.
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;
  Body body;
};

struct Statement {
  enum class Kind : uint8_t {
    kText,
    kPrint,
    kIf,        // branches; an absent condition is `else`.
    kFor,       // target in expression, if condition: body, else otherwise.
    kSet,       // target = expression
    kSetBlock,  // target = expression (a filter, or null) of body
    kMacro,
    kCall,    // expression with macro as `caller`
    kFilter,  // expression (a filter) of body
    kWith,    // targets = values: body
    kScope,   // body: {% generation %}
    kBreak,
    kContinue
  };

  struct Branch {
    ExpressionPtr condition;
    Body body;
  };

  Kind kind = Kind::kText;
  int line = 1;
  std::string text;
  ExpressionPtr target;
  ExpressionPtr expression;
  ExpressionPtr condition;
  bool recursive = false;
  std::vector<Branch> branches;
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> with;
  MacroSyntax macro;
  Body body;
  Body otherwise;
};

}  // namespace pagoda::jinja

#endif  // PAGODA_ENGINE_TEXT_JINJA_VALUES_SYNTAX_H_

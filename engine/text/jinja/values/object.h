// The values that change or can be called. A Run owns them.
#ifndef PAGODA_ENGINE_TEXT_JINJA_VALUES_OBJECT_H_
#define PAGODA_ENGINE_TEXT_JINJA_VALUES_OBJECT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/jinja/values/syntax.h"
#include "engine/text/jinja/values/value.h"

namespace pagoda::jinja {

struct Arguments;
struct Frame;
class Evaluator;

class Object {
 public:
  enum class Type : uint8_t {
    kNamespace,
    kMacro,
    kLoop,
    kSeries,
    kMethod,
    kFunction,
    kCycler,
    kJoiner
  };

  explicit Object(Type type) : type_(type) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
  Type type() const { return type_; }

 private:
  const Type type_;
};

// The object of a value, if it is of the type T.
template <typename T>
T* ObjectAs(const Value& value) {
  if (!value.Is(Value::Kind::kObject) || value.object()->type() != T::kType) return nullptr;
  return static_cast<T*>(value.object());
}

// namespace(): the one value that a template can assign to.
struct Namespace : Object {
  static constexpr Type kType = Type::kNamespace;
  Namespace() : Object(kType) {}
  std::vector<std::pair<std::string, Value>> fields;
};

struct Macro : Object {
  static constexpr Type kType = Type::kMacro;
  Macro() : Object(kType) {}
  const MacroSyntax* syntax = nullptr;
  std::shared_ptr<Frame> closure;
};

// The variable `loop`.
struct Loop : Object {
  static constexpr Type kType = Type::kLoop;
  Loop() : Object(kType) {}
  const Statement* syntax = nullptr;  // The statement of a recursive loop; else null.
  std::shared_ptr<Frame> outer;
  std::shared_ptr<const List> items;
  size_t index = 0;
  int depth = 1;
  bool has_changed_once = false;
  Value last_changed;
};

// What Python makes lazily: iterators can be read once and have no length; views and ranges have
// one.
struct Series : Object {
  static constexpr Type kType = Type::kSeries;
  enum class Form : uint8_t { kGenerator, kKeys, kValues, kItems, kRange };
  Series() : Object(kType) {}
  Form form = Form::kGenerator;
  std::shared_ptr<const List> items;
  size_t next = 0;   // The next item of a generator.
  std::string name;  // For output: "range(0, 3)".
};

// A method of a text, list, dict or object, bound to it.
struct Method : Object {
  static constexpr Type kType = Type::kMethod;
  Method() : Object(kType) {}
  Value self;
  std::string name;
};

// A global function.
struct Function : Object {
  static constexpr Type kType = Type::kFunction;
  using Call = Value (*)(Evaluator& evaluator, const Arguments& arguments);
  Function() : Object(kType) {}
  std::string name;
  Call call = nullptr;
};

struct Cycler : Object {
  static constexpr Type kType = Type::kCycler;
  Cycler() : Object(kType) {}
  std::vector<Value> items;
  size_t next = 0;
};

struct Joiner : Object {
  static constexpr Type kType = Type::kJoiner;
  Joiner() : Object(kType) {}
  Value separator;
  bool used = false;
};

}  // namespace pagoda::jinja

#endif  // PAGODA_ENGINE_TEXT_JINJA_VALUES_OBJECT_H_

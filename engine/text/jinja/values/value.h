// The values of a template: those of Python that Jinja can make.
#ifndef PAGODA_ENGINE_TEXT_JINJA_VALUES_VALUE_H_
#define PAGODA_ENGINE_TEXT_JINJA_VALUES_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/numeric/int128.h"
#include "absl/strings/string_view.h"
#include "engine/text/jinja/values/memory.h"

namespace pagoda::jinja {

class Object;
class Run;
struct Dict;
struct List;
struct Missing;
struct Text;

// Python's integers have no bound. These are refused beyond kMaxInteger, which is enough for every
// integer of a JSON text.
using Integer = absl::int128;
inline constexpr Integer kMaxInteger = absl::MakeInt128(0, ~uint64_t{0});

// Immutable; copies share texts, lists and dicts. Only Objects change (namespaces, loops): the
// rendering owns them, so values form no cycles.
class Value {
 public:
  enum class Kind : uint8_t {
    kUndefined,
    kNone,
    kBoolean,
    kInteger,
    kFloat,
    kText,
    kList,  // A tuple is a List, too.
    kDict,
    kObject
  };

  Value() = default;  // Undefined, without a name.
  static Value None() { return Value(std::in_place, std::monostate()); }
  static Value Of(bool value) { return Value(std::in_place, value); }
  static Value Of(double value) { return Value(std::in_place, value); }
  static Value OfInteger(Integer value) { return Value(std::in_place, value); }
  // A text of a parsed template, which belongs to no rendering.
  static Value OfConstant(std::string bytes);
  explicit Value(std::shared_ptr<const Missing> missing) : data_(std::move(missing)) {}
  explicit Value(std::shared_ptr<const Text> text) : data_(std::move(text)) {}
  explicit Value(std::shared_ptr<const List> list) : data_(std::move(list)) {}
  explicit Value(std::shared_ptr<const Dict> dict) : data_(std::move(dict)) {}
  explicit Value(Object* object) : data_(object) {}

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool Is(Kind kind) const { return this->kind() == kind; }
  bool IsUndefined() const { return Is(Kind::kUndefined); }
  bool IsNone() const { return Is(Kind::kNone); }
  bool IsText() const { return Is(Kind::kText); }
  bool IsDict() const { return Is(Kind::kDict); }
  bool IsList() const { return Is(Kind::kList); }
  bool IsTuple() const;
  // A boolean counts as an integer, as in Python.
  bool IsWhole() const { return Is(Kind::kInteger) || Is(Kind::kBoolean); }
  bool IsNumber() const { return IsWhole() || Is(Kind::kFloat); }

  // REQUIRES: the kind.
  bool boolean() const { return std::get<bool>(data_); }
  double real() const { return std::get<double>(data_); }
  // Values of another kind give an empty one: after an error of the run, values have no meaning.
  const Text& text() const;
  const List& list() const;
  const Dict& dict() const;
  std::shared_ptr<const List> shared_list() const {
    return std::get<std::shared_ptr<const List>>(data_);
  }
  Object* object() const { return std::get<Object*>(data_); }
  // REQUIRES: IsWhole().
  Integer whole() const;
  // REQUIRES: IsNumber().
  double number() const;
  const std::string& bytes() const;  // The bytes of text().
  // Why the value is undefined; REQUIRES: IsUndefined().
  std::string reason() const;

  // How many lists and dicts are within each other.
  int depth() const;

 private:
  using Data = std::variant<std::shared_ptr<const Missing>, std::monostate, bool, Integer, double,
                            std::shared_ptr<const Text>, std::shared_ptr<const List>,
                            std::shared_ptr<const Dict>, Object*>;
  template <typename T>
  Value(std::in_place_t, T data) : data_(std::move(data)) {}

  Data data_;
};

struct Missing {
  std::string reason;  // "'x' is undefined".
};

struct Text {
  std::string bytes;  // UTF-8.
  size_t length = 0;  // Characters.
  // Markup (`safe`, `escape`): operators escape what they add to it.
  bool markup = false;
  Charge charge;

  bool IsAscii() const { return length == bytes.size(); }
};

struct List {
  enum class Form : uint8_t { kList, kTuple, kGroup };  // kGroup: what `groupby` makes.
  std::vector<Value> items;
  Form form = Form::kList;
  int depth = 1;
  Charge charge;
};

// Keeps the order of insertion.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  int depth = 1;
  Charge charge;

  // Null if there is no such key.
  const Value* Find(Run& run, const Value& key) const;
  const Value* Find(absl::string_view key) const;
  // Replaces the value of an equal key. The dict must not be shared yet.
  void Set(Run& run, Value key, Value value);

 private:
  size_t Place(Run& run, const Value& key) const;

  absl::flat_hash_map<absl::string_view, size_t> by_text_;  // Views of the keys in `entries`.
};

// The number of characters in UTF-8.
size_t CountCharacters(absl::string_view bytes);

}  // namespace pagoda::jinja

#endif  // PAGODA_ENGINE_TEXT_JINJA_VALUES_VALUE_H_

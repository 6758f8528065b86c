// The arguments of a call, and their parameters.
#ifndef PAGODA_ENGINE_TEXT_JINJA_VALUES_ARGUMENTS_H_
#define PAGODA_ENGINE_TEXT_JINJA_VALUES_ARGUMENTS_H_

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/text/jinja/values/run.h"
#include "engine/text/jinja/values/value.h"

namespace pagoda::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Arguments by the parameters of a function. Errors of the run: too many arguments, an unknown
// name, a parameter with two values, fewer than `required`. After an error, values are undefined.
class Parameters {
 public:
  Parameters(Run& run, absl::string_view function, const Arguments& arguments,
             std::initializer_list<const char*> names, size_t required = 0);

  bool Has(size_t i) const { return values_[i] != nullptr; }
  // Undefined if absent.
  Value operator[](size_t i) const { return Has(i) ? *values_[i] : Value(); }
  bool Bool(size_t i, bool otherwise) const;
  // Errors of the run: another type than an integer, or beyond 64 bits.
  int64_t Integer(size_t i, int64_t otherwise) const;
  // Errors of the run: another type than a text.
  std::string Text(size_t i, absl::string_view otherwise = "") const;

 private:
  Run& run_;
  const std::string function_;
  std::vector<const char*> names_;
  std::vector<const Value*> values_;
};

}  // namespace pagoda::jinja

#endif  // PAGODA_ENGINE_TEXT_JINJA_VALUES_ARGUMENTS_H_

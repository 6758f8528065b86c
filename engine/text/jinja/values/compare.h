// Truth, equality and order of values, as in Python.
#ifndef PAGODA_ENGINE_TEXT_JINJA_VALUES_COMPARE_H_
#define PAGODA_ENGINE_TEXT_JINJA_VALUES_COMPARE_H_

#include <compare>
#include <optional>
#include <string>

#include "engine/text/jinja/values/run.h"
#include "engine/text/jinja/values/value.h"

namespace pagoda::jinja {

bool IsTrue(const Value& value);

// 1 == 1.0 == True. Lists and dicts are compared by their elements. Each element is a step of
// `run`: a list that holds another one many times has more elements than memory.
bool Equal(Run& run, const Value& left, const Value& right);

// Nothing if Python cannot order the two: it raises a TypeError.
std::optional<std::partial_ordering> Order(Run& run, const Value& left, const Value& right);

// Lists and dicts are no keys of dicts.
bool IsHashable(Run& run, const Value& value);

// Python's name of the type: "str".
std::string TypeName(const Value& value);

}  // namespace pagoda::jinja

#endif  // PAGODA_ENGINE_TEXT_JINJA_VALUES_COMPARE_H_

// What `.name`, `[key]` and `[from:to]` find.
#ifndef PAGODA_ENGINE_TEXT_JINJA_PYTHON_ATTRIBUTES_H_
#define PAGODA_ENGINE_TEXT_JINJA_PYTHON_ATTRIBUTES_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "engine/text/jinja/values/run.h"
#include "engine/text/jinja/values/value.h"

namespace pagoda::jinja {

// value.name: Python's attribute, else value["name"]; undefined if neither is there. Methods that
// change a list or dict are undefined, as in the sandbox. Errors of the run: a part of an undefined
// value.
Value GetAttribute(Run& run, const Value& value, absl::string_view name);
// value[key]: the item, else for a text the attribute.
Value GetItem(Run& run, const Value& value, const Value& key);
// value[from:to:step]; none and undefined parts are absent.
Value GetSlice(Run& run, const Value& value, const Value& from, const Value& to, const Value& step);

// The character at a place. REQUIRES: place < text.length.
absl::string_view CharacterAt(const Text& text, size_t place);
// The number of elements, of a value that has one.
bool LengthOf(const Value& value, size_t* length);

// Whether the value has a method of this name that the sandbox allows.
bool HasMethod(const Value& value, absl::string_view name);

}  // namespace pagoda::jinja

#endif  // PAGODA_ENGINE_TEXT_JINJA_PYTHON_ATTRIBUTES_H_

// The methods of values, as Python has them.
#ifndef PAGODA_ENGINE_TEXT_JINJA_PYTHON_METHODS_H_
#define PAGODA_ENGINE_TEXT_JINJA_PYTHON_METHODS_H_

#include <utility>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/text/jinja/values/arguments.h"
#include "engine/text/jinja/values/run.h"
#include "engine/text/jinja/values/value.h"

namespace pagoda::jinja {

using MethodCall = Value (*)(Run& run, const Value& self, const Arguments& arguments);
using MethodTable = absl::Span<const std::pair<absl::string_view, MethodCall>>;

// Null if the value has no such method. The sandbox's refusals are in attributes.h.
MethodCall FindMethod(const Value& value, absl::string_view name);

MethodTable TextMethods();      // text_methods.cc
MethodTable TextCaseMethods();  // text_case_methods.cc
MethodTable ListMethods();      // container_methods.cc
MethodTable DictMethods();
MethodTable NumberMethods();
MethodTable LoopMethods();
MethodTable CyclerMethods();

}  // namespace pagoda::jinja

#endif  // PAGODA_ENGINE_TEXT_JINJA_PYTHON_METHODS_H_

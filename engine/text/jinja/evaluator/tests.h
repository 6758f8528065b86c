// Jinja's tests: `value is name(arguments)`.
#ifndef PAGODA_ENGINE_TEXT_JINJA_EVALUATOR_TESTS_H_
#define PAGODA_ENGINE_TEXT_JINJA_EVALUATOR_TESTS_H_

#include "absl/strings/string_view.h"
#include "engine/text/jinja/values/arguments.h"
#include "engine/text/jinja/values/run.h"
#include "engine/text/jinja/values/value.h"

namespace pagoda::jinja {

using TestCall = bool (*)(Run& run, const Value& value, const Arguments& arguments);

// Null if there is no such test.
TestCall FindTest(absl::string_view name);

}  // namespace pagoda::jinja

#endif  // PAGODA_ENGINE_TEXT_JINJA_EVALUATOR_TESTS_H_

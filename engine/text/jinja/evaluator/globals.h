// The functions that every template can call.
#ifndef PAGODA_ENGINE_TEXT_JINJA_EVALUATOR_GLOBALS_H_
#define PAGODA_ENGINE_TEXT_JINJA_EVALUATOR_GLOBALS_H_

#include "absl/strings/string_view.h"
#include "engine/text/jinja/values/object.h"

namespace pagoda::jinja {

// range, dict, namespace, cycler, joiner, raise_exception, strftime_now. Null for other names.
Function::Call FindGlobal(absl::string_view name);

}  // namespace pagoda::jinja

#endif  // PAGODA_ENGINE_TEXT_JINJA_EVALUATOR_GLOBALS_H_

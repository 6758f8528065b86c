// The elements of a value.
#ifndef PAGODA_ENGINE_TEXT_JINJA_VALUES_ITERATE_H_
#define PAGODA_ENGINE_TEXT_JINJA_VALUES_ITERATE_H_

#include <memory>

#include "engine/text/jinja/values/run.h"
#include "engine/text/jinja/values/value.h"

namespace pagoda::jinja {

// The elements that a loop over the value takes; never null. Reads a generator to its end. Errors
// of the run: the value has no elements.
std::shared_ptr<const List> Iterate(Run& run, const Value& value);
// Without reading: whether Iterate succeeds.
bool IsIterable(const Value& value);

}  // namespace pagoda::jinja

#endif  // PAGODA_ENGINE_TEXT_JINJA_VALUES_ITERATE_H_

// The part of an element that a filter reads.
#ifndef PAGODA_ENGINE_TEXT_JINJA_PYTHON_ITEM_KEY_H_
#define PAGODA_ENGINE_TEXT_JINJA_PYTHON_ITEM_KEY_H_

#include <cstdint>
#include <vector>

#include "engine/text/jinja/values/run.h"
#include "engine/text/jinja/values/value.h"

namespace pagoda::jinja {

// Takes `attribute` of elements: "a.b" is element["a"]["b"], a whole number is an index, and
// nothing (undefined or none) is the element itself.
class ItemKey {
 public:
  enum class Case : uint8_t { kAsIs, kIgnored };  // Ignored: texts in lower case.

  ItemKey(Run& run, const Value& attribute, Case letters);

  // In place of undefined parts, unless it is none or undefined.
  void SetDefault(Value value) { default_ = std::move(value); }
  Value Of(const Value& item) const;

 private:
  Run& run_;
  const Case case_;
  std::vector<Value> path_;
  Value default_;
};

}  // namespace pagoda::jinja

#endif  // PAGODA_ENGINE_TEXT_JINJA_PYTHON_ITEM_KEY_H_

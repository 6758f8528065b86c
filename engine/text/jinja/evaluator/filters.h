// Jinja's filters.
#ifndef PAGODA_ENGINE_TEXT_JINJA_EVALUATOR_FILTERS_H_
#define PAGODA_ENGINE_TEXT_JINJA_EVALUATOR_FILTERS_H_

#include <utility>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/text/jinja/evaluator/evaluator.h"
#include "engine/text/jinja/values/arguments.h"
#include "engine/text/jinja/values/value.h"

namespace pagoda::jinja {

using FilterCall = Value (*)(Evaluator& evaluator, const Value& value, const Arguments& arguments);
using FilterTable = absl::Span<const std::pair<absl::string_view, FilterCall>>;

// Null if there is no such filter. These filters of Jinja are absent: filesizeformat, pprint,
// random, striptags, urlize, wordwrap, xmlattr.
FilterCall FindFilter(absl::string_view name);

FilterTable TextFilters();      // text_filters.cc
FilterTable NumberFilters();    // number_filters.cc
FilterTable SequenceFilters();  // sequence_filters.cc
FilterTable OrderFilters();     // order_filters.cc
FilterTable ChoiceFilters();    // choice_filters.cc

}  // namespace pagoda::jinja

#endif  // PAGODA_ENGINE_TEXT_JINJA_EVALUATOR_FILTERS_H_

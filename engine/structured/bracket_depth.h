#ifndef PAGODA_ENGINE_STRUCTURED_BRACKET_DEPTH_H_
#define PAGODA_ENGINE_STRUCTURED_BRACKET_DEPTH_H_

#include <cstddef>

#include "absl/strings/string_view.h"
#include "engine/structured/grammar.h"

namespace pagoda {

// The most brackets of a text that are open at once. Those in strings, in classes of characters, in
// comments and behind a backslash are text. Cost: linear.
size_t BracketDepth(StructuredOutput::Kind kind, absl::string_view text);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_STRUCTURED_BRACKET_DEPTH_H_

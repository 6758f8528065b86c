// Edits of texts that methods and filters share.
#ifndef PAGODA_ENGINE_TEXT_JINJA_PYTHON_TEXT_EDIT_H_
#define PAGODA_ENGINE_TEXT_JINJA_PYTHON_TEXT_EDIT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/text/jinja/values/run.h"

namespace pagoda::jinja {

// A line by str.splitlines.
struct Line {
  absl::string_view text;
  absl::string_view with_end;
};
std::vector<Line> LinesOf(absl::string_view text);

// The part of `count` characters from character `begin`.
absl::string_view Characters(absl::string_view text, size_t begin, size_t count);

// The first or last place of `part`, or npos. Counts the bytes that it compares as work of the run:
// a part that is nearly everywhere costs the product of the sizes. The caller counts the text's own
// bytes. npos after an error of the run.
size_t FindText(Run& run, absl::string_view text, absl::string_view part);
size_t FindLastText(Run& run, absl::string_view text, absl::string_view part);

// How often `part`, which is not empty, occurs without overlaps. Counts work as FindText does.
size_t Occurrences(Run& run, absl::string_view text, absl::string_view part);

// str.replace; a negative number replaces all. Empty after an error of the run (too much memory).
std::string ReplaceIn(Run& run, absl::string_view text, absl::string_view from,
                      absl::string_view to, int64_t most);

// A text many times. Empty after an error of the run.
std::string Copies(Run& run, absl::string_view text, int64_t count);

// Case mappings of Unicode, as str.upper, str.lower, str.capitalize, str.title.
std::string UpperCase(absl::string_view text);
std::string LowerCase(absl::string_view text);
std::string Capitalized(absl::string_view text);
std::string TitleCase(absl::string_view text);

}  // namespace pagoda::jinja

#endif  // PAGODA_ENGINE_TEXT_JINJA_PYTHON_TEXT_EDIT_H_

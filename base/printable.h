// Makes text of other processes safe to show in a log or on a terminal.
#ifndef PAGODA_BASE_PRINTABLE_H_
#define PAGODA_BASE_PRINTABLE_H_

#include <string>
#include <string_view>

namespace pagoda {

// The text in valid UTF-8, on one line, with nothing that a terminal obeys. Escapes control
// characters, line separators and the marks that change the direction of text, as JSON does ("\n",
// "\u001b", "\u202e"), and bytes that are not UTF-8 ("\xff"). Everything else stays, so a backslash
// of the text looks like one of an escape.
std::string Printable(std::string_view text);

}  // namespace pagoda

#endif  // PAGODA_BASE_PRINTABLE_H_

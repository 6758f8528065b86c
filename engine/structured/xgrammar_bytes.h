// A compiled grammar as bytes, for another process with the same vocabulary. The library's own
// serialization is not used for all of it: it repeats the automaton of all rules for each rule, and
// writes the masks of tokens as JSON.
#ifndef PAGODA_ENGINE_STRUCTURED_XGRAMMAR_BYTES_H_
#define PAGODA_ENGINE_STRUCTURED_XGRAMMAR_BYTES_H_

#include <xgrammar/xgrammar.h>

#include <string>

#include "absl/strings/string_view.h"

namespace pagoda {

std::string BytesOf(const xgrammar::CompiledGrammar& grammar);

// Checks each index in the bytes. Throws std::runtime_error if they are not those of a grammar over
// this vocabulary.
xgrammar::CompiledGrammar GrammarOf(absl::string_view bytes,
                                    const xgrammar::TokenizerInfo& vocabulary);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_STRUCTURED_XGRAMMAR_BYTES_H_

// The rules for any tokenizer that was read from untrusted bytes.
#ifndef PAGODA_TESTS_FUZZ_TEXT_CHECKS_H_
#define PAGODA_TESTS_FUZZ_TEXT_CHECKS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/error.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace pagoda::fuzz {

inline void CheckText(const Tokenizer& tokenizer, const std::string& text) {
  const absl::StatusOr<std::vector<TokenId>> ids = tokenizer.Encode(text, SpecialTokens::kKeep);
  if (!ids.ok()) {
    PAGODA_CHECK(ReasonOf(ids.status()) == Reason::kInvalidPrompt, "a text is refused by name");
    return;
  }
  PAGODA_CHECK(IsUtf8(text), "what is encoded is UTF-8");
  StreamDecoder stream(&tokenizer, SpecialTokens::kKeep);
  std::string pieces;
  for (const TokenId id : *ids) {
    PAGODA_CHECK(id < tokenizer.size(), "an id is one of the vocabulary");
    pieces += stream.Add(id);
    PAGODA_CHECK(IsUtf8(pieces), "a stream gives whole characters");
  }
  pieces += stream.Finish();
  PAGODA_CHECK(pieces == tokenizer.Decode(*ids, SpecialTokens::kKeep),
               "a stream is the text in pieces");
}

}  // namespace pagoda::fuzz

#endif  // PAGODA_TESTS_FUZZ_TEXT_CHECKS_H_

// Ends a text at the beginning of a stop string.
#ifndef PAGODA_ENGINE_TEXT_STOP_STRINGS_H_
#define PAGODA_ENGINE_TEXT_STOP_STRINGS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace pagoda {

// Takes a text in pieces, and holds back only what could still become a stop string.
// Thread-compatible.
class StopStrings {
 public:
  // Ignores empty strings. REQUIRES: `stops` and all added text are UTF-8. The output is then UTF-8
  // too.
  explicit StopStrings(std::vector<std::string> stops);

  // The text that cannot become a stop string. Empty once a stop string has been found.
  std::string Add(absl::string_view text);
  // The rest of the text when nothing follows.
  std::string Finish();
  bool stopped() const { return stopped_; }

 private:
  // How many bytes at the end of kept_ could be the beginning of a stop string.
  size_t UndecidedBytes() const;

  std::vector<std::string> stops_;
  std::string kept_;
  bool stopped_ = false;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_STOP_STRINGS_H_

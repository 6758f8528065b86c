// Ends a text where one of some strings begins.
#ifndef PAGODA_ENGINE_TEXT_STOP_STRINGS_H_
#define PAGODA_ENGINE_TEXT_STOP_STRINGS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace pagoda {

// A text that comes piece by piece: keeps back as little as could still become a stop string.
// Thread-compatible.
class StopStrings {
 public:
  // Empty ones are left out. REQUIRES: UTF-8, as all text that is added; then what comes out is
  // too.
  explicit StopStrings(std::vector<std::string> stops);

  // What is certain to be text. Nothing more once one has stopped it.
  std::string Add(absl::string_view text);
  // The rest, when nothing follows.
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

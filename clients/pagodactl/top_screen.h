// The picture that `top` draws, as text. Knows no terminal but as a value.
#ifndef PAGODA_CLIENTS_PAGODACTL_TOP_SCREEN_H_
#define PAGODA_CLIENTS_PAGODACTL_TOP_SCREEN_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "clients/pagodactl/terminal.h"
#include "clients/pagodactl/top_state.h"

namespace pagoda {

// Whether the state goes on, or stands still so that a person can read it.
enum class TopPicture { kMoving, kHeld };

// At most terminal.rows lines of at most terminal.columns characters; what is less important is
// left out where there is no room. A report for a file (terminal.rows 0) has all lines, whole.
std::vector<std::string> TopScreen(const TopState& state, const Terminal& terminal, absl::Time now,
                                   TopPicture picture = TopPicture::kMoving);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_TOP_SCREEN_H_

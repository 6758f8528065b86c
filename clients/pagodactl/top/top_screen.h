// The picture of `top` as text. It does not touch the terminal.
#ifndef PAGODA_CLIENTS_PAGODACTL_TOP_TOP_SCREEN_H_
#define PAGODA_CLIENTS_PAGODACTL_TOP_TOP_SCREEN_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "clients/command_line/terminal/terminal.h"
#include "clients/pagodactl/top/top_state.h"

namespace pagoda {

// Whether the picture is updated, or paused so that a person can read it.
enum class TopPicture { kMoving, kHeld };

// Returns at most terminal.rows lines of at most terminal.columns characters. If the space is too
// small, the less important parts are left out. A report for a file (terminal.rows 0) has all lines
// at full length.
std::vector<std::string> TopScreen(const TopState& state, const Terminal& terminal, absl::Time now,
                                   TopPicture picture = TopPicture::kMoving);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_TOP_TOP_SCREEN_H_

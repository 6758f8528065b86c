// Formats numbers and empty texts for people.
#ifndef PAGODA_CLIENTS_COMMAND_LINE_TERMINAL_FORMAT_H_
#define PAGODA_CLIENTS_COMMAND_LINE_TERMINAL_FORMAT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "clients/command_line/terminal/terminal.h"

namespace pagoda {

std::string FormatCount(uint64_t count);  // "12,031"
// "1 session", "2,000 sessions", "2 copies": Counted of base/counted.h, with separators in the
// number. Every number of things is written by it.
std::string FormatCounted(uint64_t count, const std::string& noun);
// "1 token is cached", "2 tokens are cached".
std::string FormatCached(uint64_t count, const std::string& noun);
// "1 block", "2 blocks".
std::string FormatBlocks(uint64_t count);
// "192 in hbm, 640 in dram": amounts by place. Amounts of 0 are left out.
std::string FormatParts(const std::vector<std::pair<std::string, uint64_t>>& parts);
std::string FormatShare(double share);        // 0.3664: "36.64 %"
std::string FormatBytes(uint64_t bytes);      // "64.0 MiB"
std::string OrDash(const std::string& text);  // The text; "-" if it is empty.
std::string FormatElapsed(
    absl::Duration elapsed);  // "85 us", "1.24 ms", "3.50 s", "3 min 12 s", "2 h 5 min"

// part / whole; 0 if `whole` is 0.
double Share(uint64_t part, uint64_t whole);

// A bar of `width` characters, of which `share` is filled. A share above 0 fills at least one.
std::string Bar(const Terminal& terminal, double share, int width);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_COMMAND_LINE_TERMINAL_FORMAT_H_

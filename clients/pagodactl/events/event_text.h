// Events as text for people.
#ifndef PAGODA_CLIENTS_PAGODACTL_EVENTS_EVENT_TEXT_H_
#define PAGODA_CLIENTS_PAGODACTL_EVENTS_EVENT_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "clients/command_line/terminal/terminal.h"
#include "pagoda/v1/events.pb.h"
#include "pagoda/v1/types.pb.h"

namespace pagoda {

// The parts of an event's line.
struct EventSummary {
  uint64_t revision = 0;  // 0: in a snapshot.
  absl::Time time;
  uint32_t window_size = 0;
  std::string type;  // "stored"
  Style style = Style::kBold;
  std::string blocks;  // Their number, or "all".
  std::string tokens = "-";
  std::string detail;  // The details of the event's type.
};
// `cache` names the tiers; one that it does not have gets its default name.
EventSummary Summarize(const v1::Event& event, const v1::CacheInfo& cache = {});
std::string RemovalReasonText(v1::RemovalReason reason);  // "taken over"

// One line without its newline: revision ("-" in a snapshot), local time, type, window, number of
// blocks, number of tokens, and the details of the type. `content`: what the stream has of blocks.
// `cache`: as for Summarize.
std::string EventHeader();
std::string EventLine(const v1::Event& event, const Terminal& terminal,
                      v1::EventContent content = v1::EVENT_CONTENT_TOKENS,
                      const v1::CacheInfo& cache = {});
// The lines before and after a snapshot. The end line has the revision of the message: as of it,
// the snapshot is complete.
std::string SnapshotBeginLine(const Terminal& terminal);
std::string SnapshotEndLine(const v1::WatchResponse& message, const Terminal& terminal);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_EVENTS_EVENT_TEXT_H_

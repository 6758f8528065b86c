// Events as people and programs read them.
#ifndef PAGODA_CLIENTS_PAGODACTL_EVENT_TEXT_H_
#define PAGODA_CLIENTS_PAGODACTL_EVENT_TEXT_H_

#include <string>

#include "clients/pagodactl/terminal.h"
#include "nlohmann/json.hpp"
#include "pagoda/v1/events.pb.h"

namespace pagoda {

// One line, without its end: revision, local time, type, window, number of blocks, number of
// tokens, and what is special to the type.
std::string EventHeader();
std::string EventLine(const v1::Event& event, const Terminal& terminal);

// One object. 64-bit hashes are strings of 16 hexadecimal digits, because JSON's numbers lose such
// values in many readers.
nlohmann::ordered_json EventJson(const v1::Event& event);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_EVENT_TEXT_H_

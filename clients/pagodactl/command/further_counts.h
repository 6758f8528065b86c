// Counters of a status that its hand-made text does not show.
#ifndef PAGODA_CLIENTS_PAGODACTL_COMMAND_FURTHER_COUNTS_H_
#define PAGODA_CLIENTS_PAGODACTL_COMMAND_FURTHER_COUNTS_H_

#include <string>

#include "google/protobuf/message.h"

namespace pagoda {

// "redirections 3, gets (ok 12, missing 1)": the fields of a message that end in _total, by their
// names. Each is a number or a list of NamedCount. Leaves out values of 0, and fields whose number
// is at most `last_known`: the message's own text was written when that was the last field. Empty:
// there is nothing to add to that text.
std::string FurtherCounts(const google::protobuf::Message& message, int last_known);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_COMMAND_FURTHER_COUNTS_H_

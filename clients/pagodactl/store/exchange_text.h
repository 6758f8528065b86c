// What a daemon exchanges with its store and with other daemons, for people.
#ifndef PAGODA_CLIENTS_PAGODACTL_STORE_EXCHANGE_TEXT_H_
#define PAGODA_CLIENTS_PAGODACTL_STORE_EXCHANGE_TEXT_H_

#include <string>
#include <utility>
#include <vector>

#include "pagoda/v1/admin.pb.h"

namespace pagoda {

// Rows of a label and a text, such as {"fetches", "fetched 12, missing 3; ..."}. Labels have at
// most nine characters.
using LabelledTexts = std::vector<std::pair<std::string, std::string>>;

// What all caches of the daemon share: its store and other daemons. Empty: there are none.
LabelledTexts OtherMachinesTexts(const v1::GetStatusResponse& status);
// What the cache of the status exchanges. Empty: nothing.
LabelledTexts ExchangeTexts(const v1::GetStatusResponse& status);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_STORE_EXCHANGE_TEXT_H_

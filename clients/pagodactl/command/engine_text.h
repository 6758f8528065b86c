// The state of the daemon's engine, for people.
#ifndef PAGODA_CLIENTS_PAGODACTL_COMMAND_ENGINE_TEXT_H_
#define PAGODA_CLIENTS_PAGODACTL_COMMAND_ENGINE_TEXT_H_

#include <string>

#include "pagoda/v1/admin.pb.h"
#include "pagoda/v1/caches.pb.h"

namespace pagoda {

// "gRPC at unix:/run/engine.sock and 127.0.0.1:7074, OpenAI's API at 127.0.0.1:7076". Empty: the
// engine has no address, or it is not up.
std::string EngineAddressesText(const v1::CacheEngine& addresses);
// "up", or "not up, restarted 3 times: signal 9 ended it". One line.
std::string EngineStateText(const v1::EngineStatus& engine);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_COMMAND_ENGINE_TEXT_H_

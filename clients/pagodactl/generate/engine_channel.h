// Finds the daemon's engine, a process with its own addresses, and connects to it. Joins the parts
// of its answers.
#ifndef PAGODA_CLIENTS_PAGODACTL_GENERATE_ENGINE_CHANNEL_H_
#define PAGODA_CLIENTS_PAGODACTL_GENERATE_ENGINE_CHANNEL_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/command_line/command.h"
#include "grpcpp/channel.h"
#include "pagoda/v1/engine.pb.h"

namespace pagoda {

// Connects to the engine that the options' daemon names in ListCaches, with the credentials for the
// daemon. If the options name a cache, it is the engine's. If the options' endpoint is an engine's
// own address, connects to that. Errors: those of ConnectToDaemon and of the call; NO_ENGINE;
// UNAVAILABLE, without a reason, if the engine is not up or does not answer; those of
// EngineEndpoints.
absl::StatusOr<std::shared_ptr<grpc::Channel>> ConnectToEngine(const GlobalOptions& globals);

// The endpoints at which this machine can try the engine, the best one first. `daemon` is the
// endpoint of the daemon, and `addresses` are the engine's addresses as the daemon tells them: not
// empty. An existing Unix socket is the best, if the daemon is on this machine. An address of all
// interfaces becomes one of the daemon's host. Errors: FAILED_PRECONDITION, without a reason, if
// there is none.
absl::StatusOr<std::vector<std::string>> EngineEndpoints(const std::string& daemon,
                                                         const std::vector<std::string>& addresses);

// Adds a further message of Generate's stream to the answer so far.
void AddToAnswer(const v1::GenerateResponse& message, v1::GenerateResponse* answer);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_GENERATE_ENGINE_CHANNEL_H_

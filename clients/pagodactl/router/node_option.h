// The option that names a node of a router.
#ifndef PAGODA_CLIENTS_PAGODACTL_ROUTER_NODE_OPTION_H_
#define PAGODA_CLIENTS_PAGODACTL_ROUTER_NODE_OPTION_H_

#include <string>
#include <vector>

#include "clients/router/node_watch.h"

namespace CLI {
class App;
}

namespace pagoda {

// Adds --node, which can be repeated. `nodes` must outlive the parser.
void AddNodeOption(CLI::App& command, std::vector<std::string>& nodes);

// The node of "[NAME=]ENDPOINT[,PEER]". Without a name, the endpoint is the name. The parser has
// checked the text.
RouterNode ParseNode(const std::string& text);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_ROUTER_NODE_OPTION_H_

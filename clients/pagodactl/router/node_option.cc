#include "clients/pagodactl/router/node_option.h"

#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace pagoda {
namespace {

std::string CheckNode(const std::string& text) {
  const RouterNode node = ParseNode(text);
  return node.name.empty() || node.endpoint.empty()
             ? absl::StrCat("\"", text, "\" is not [NAME=]ENDPOINT[,PEER]")
             : "";
}

}  // namespace

RouterNode ParseNode(const std::string& text) {
  RouterNode node;
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(',', 1));
  node.peer_address = parts.second;
  const std::vector<std::string> named = absl::StrSplit(parts.first, absl::MaxSplits('=', 1));
  node.name = named.front();
  node.endpoint = named.back();
  return node;
}

void AddNodeOption(CLI::App& command, std::vector<std::string>& nodes) {
  command
      .add_option("--node", nodes,
                  "A daemon: its name in the answer, its endpoint, and the address at which other "
                  "daemons fetch from it. Repeat the option for each; default: --endpoint")
      ->type_name("[NAME=]ENDPOINT[,PEER]")
      ->check(CheckNode);
}

}  // namespace pagoda

#include "clients/pagodactl/store/store_options.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "pools/store/cluster_map.h"
#include "yaml-cpp/yaml.h"

namespace pagoda {
namespace {

// Reads the section into flags. Throws YAML::Exception.
void ReadSection(const YAML::Node& store, const std::filesystem::path& folder, StoreFlags& flags) {
  const auto text = [](const YAML::Node& section, const char* key, std::string& value) {
    if (section && section[key]) value = section[key].as<std::string>();
  };
  const auto path = [&](const YAML::Node& section, const char* key, std::string& value) {
    text(section, key, value);
    if (!value.empty()) value = (folder / value).string();
  };
  if (!store) return;
  if (store["servers"]) flags.servers = store["servers"].as<std::vector<std::string>>();
  if (store["allowed_networks"]) {
    flags.allowed_networks = store["allowed_networks"].as<std::vector<std::string>>();
  }
  text(store, "key_prefix", flags.key_prefix);
  text(store, "username", flags.username);
  path(store, "secret_file", flags.secret_file);
  path(store, "password_file", flags.password_file);
  const YAML::Node tls = store["tls"];
  if (tls && tls["enabled"]) flags.tls = tls["enabled"].as<bool>();
  path(tls, "ca", flags.tls_ca);
  path(tls, "certificate", flags.tls_certificate);
  path(tls, "key", flags.tls_key);
}

absl::StatusOr<StoreFlags> FlagsOfConfig(const std::string& file) {
  StoreFlags flags;
  try {
    const YAML::Node config = YAML::LoadFile(file);
    ReadSection(config["store"], std::filesystem::path(file).parent_path(), flags);
  } catch (const YAML::Exception& error) {
    return InvalidArgument(absl::StrCat(file, ": ", error.what()));
  }
  if (flags.servers.empty()) {
    return InvalidArgument(absl::StrCat(file, " names no servers of a store (store.servers)"));
  }
  return flags;
}

}  // namespace

void AddStoreFlags(CLI::App& command, StoreFlags& flags) {
  CLI::Option* config = command
                            .add_option("--config", flags.config_file,
                                        "A configuration of pagodad, whose store is checked")
                            ->type_name("FILE");
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->excludes(config);
  };
  add("--server", flags.servers, "A server of the store; can be given more than once")
      ->type_name("HOST:PORT");
  add("--allowed-network", flags.allowed_networks,
      "A network of further servers; default: near --server; can be given more than once")
      ->type_name("NETWORK");
  add("--key-prefix", flags.key_prefix, "The daemons' store.key_prefix")->capture_default_str();
  add("--secret-file", flags.secret_file, "The daemons' store.secret_file")->type_name("FILE");
  add("--username", flags.username, "The user of the store; default: the default user");
  add("--password-file", flags.password_file, "A file whose first line is the password")
      ->type_name("FILE");
  command.add_flag("--tls", flags.tls, "Use TLS, with the system's certificate authorities")
      ->excludes(config);
  add("--tls-ca", flags.tls_ca, "Use TLS; the CA of the servers' certificates (PEM)")
      ->type_name("FILE");
  add("--tls-certificate", flags.tls_certificate,
      "The client's certificate (PEM), if the servers ask for one")
      ->type_name("FILE");
  add("--tls-key", flags.tls_key, "The key of the client's certificate (PEM)")->type_name("FILE");
}

absl::StatusOr<RedisOptions> StoreOptionsOf(const StoreFlags& given) {
  StoreFlags flags = given;
  if (!given.config_file.empty()) {
    absl::StatusOr<StoreFlags> read = FlagsOfConfig(given.config_file);
    if (!read.ok()) return read.status();
    flags = *std::move(read);
  }
  if (flags.servers.empty()) return InvalidArgument("name the store with --server or --config");
  RedisOptions options = {
      .key_prefix = flags.key_prefix,
      .username = flags.username,
      .password_file = flags.password_file,
      .tls = {.is_on = flags.tls || !flags.tls_ca.empty() || !flags.tls_certificate.empty(),
              .ca_file = flags.tls_ca,
              .certificate_file = flags.tls_certificate,
              .key_file = flags.tls_key},
      .allowed_networks = flags.allowed_networks};
  for (const std::string& server : flags.servers) {
    absl::StatusOr<RedisAddress> address = ParseRedisAddress(server);
    if (!address.ok()) return InvalidArgument(absl::StrCat("'", server, "' is not HOST:PORT"));
    options.seeds.push_back(*std::move(address));
  }
  if (!flags.secret_file.empty()) {
    std::ifstream file(flags.secret_file);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    options.secret = std::string(absl::StripAsciiWhitespace(text));
    if (options.secret.empty()) {
      return InvalidArgument(absl::StrCat(flags.secret_file, " is empty or unreadable"));
    }
  }
  return options;
}

}  // namespace pagoda

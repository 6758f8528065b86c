#include "tests/pools/store/redis_servers.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "pools/store/cluster_map.h"
#include "tests/pools/store/resp_client.h"
#include "tests/wait_until.h"

extern char** environ;

namespace pagoda {
namespace {

// Starts a program. Its output goes to a file.
pid_t Spawn(std::vector<std::string> arguments, const std::string& output) {
  std::vector<char*> raw;
  for (std::string& argument : arguments) raw.push_back(argument.data());
  raw.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                   0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t pid = -1;
  if (posix_spawnp(&pid, raw[0], &actions, nullptr, raw.data(), environ) != 0) pid = -1;
  posix_spawn_file_actions_destroy(&actions);
  return pid;
}

int Run(std::vector<std::string> arguments, const std::string& output) {
  const pid_t pid = Spawn(std::move(arguments), output);
  int status = -1;
  if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

bool IsProgram(const std::string& name) {
  const std::string path = std::getenv("PATH") == nullptr ? "/usr/bin" : std::getenv("PATH");
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find(':', at), path.size());
    const std::string file = name[0] == '/' ? name : path.substr(at, end - at) + "/" + name;
    if (access(file.c_str(), X_OK) == 0) return true;
    at = end + 1;
  }
  return false;
}

// Further ports that a server tries if it cannot listen at the first.
constexpr int kMorePorts = 4;

}  // namespace

std::vector<ServerKind> InstalledServers() {
  const auto environment = [](const char* name, const char* otherwise) -> std::string {
    const char* const value = std::getenv(name);
    return value == nullptr ? otherwise : value;
  };
  std::vector<ServerKind> kinds;
  for (ServerKind& kind :
       std::vector<ServerKind>{{"redis", "redis-server", "redis-cli"},
                               {"valkey", environment("PAGODA_VALKEY_SERVER", "valkey-server"),
                                environment("PAGODA_VALKEY_CLI", "valkey-cli")}}) {
    if (IsProgram(kind.server) && IsProgram(kind.cli)) kinds.push_back(std::move(kind));
  }
  return kinds;
}

RedisServer::RedisServer(const ServerKind& kind, std::vector<std::string> arguments)
    : kind_(kind), arguments_(std::move(arguments)), port_(FreePort()) {
  Start();
  for (int i = 0; i < kMorePorts && !is_up_; ++i) {
    Kill();
    port_ = FreePort();
    Start();
  }
}

void RedisServer::Start() {
  std::vector<std::string> command = {kind_.server,
                                      "--port",
                                      std::to_string(port_),
                                      "--bind",
                                      "127.0.0.1",
                                      "--save",
                                      "",
                                      "--dir",
                                      directory_.path(),
                                      "--repl-diskless-sync-delay",
                                      "0"};
  command.insert(command.end(), arguments_.begin(), arguments_.end());
  pid_ = Spawn(std::move(command), directory_.path() + "/log");
  // An error is an answer too: NOAUTH. A server that cannot listen ends.
  is_up_ = false;
  if (pid_ <= 0) return;
  const bool has_answered_or_ended = WaitUntil([this] {
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = -1;
      return true;
    }
    RespClient client(port_);
    return client.is_open() && client.Do({"PING"}).text.find("BROKEN") == std::string::npos;
  });
  is_up_ = has_answered_or_ended && pid_ > 0;
}

bool RedisServer::Set(const std::string& option, const std::string& value) {
  arguments_.push_back(absl::StrCat("--", option));
  arguments_.push_back(value);
  return RespClient(port_).Do({"CONFIG", "SET", option, value}).text == "OK";
}

void RedisServer::Kill() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(std::exchange(pid_, -1), nullptr, 0);
}

void RedisServer::Signal(int signal) const { kill(pid_, signal); }

TestCluster::TestCluster(const ServerKind& kind, std::vector<std::string> arguments) {
  // A server forgets another one that is slower to greet it than the node timeout, and redis-cli
  // then waits for it for ever. So it is long until the cluster is complete.
  for (const char* argument : {"--cluster-enabled", "yes", "--cluster-node-timeout", "30000",
                               "--cluster-config-file", "nodes.conf", "--appendonly", "no"}) {
    arguments.push_back(argument);
  }
  for (int i = 0; i < 6; ++i) {
    servers_.push_back(std::make_unique<RedisServer>(kind, arguments));
    if (!servers_.back()->is_up()) return;
  }
  std::vector<std::string> create = {"timeout", "60", kind.cli, "--cluster", "create"};
  for (const RedisAddress& seed : seeds()) create.push_back(ToString(seed));
  for (const char* argument : {"--cluster-replicas", "1", "--cluster-yes"}) {
    create.push_back(argument);
  }
  if (Run(create, servers_[0]->directory() + "/create") != 0) return;
  // Each server has learnt of all, and each replica follows its primary.
  is_up_ = WaitUntil([this] {
    return std::all_of(servers_.begin(), servers_.end(), [](const auto& server) {
      RespClient client(server->port());
      const std::string info = client.Do({"CLUSTER", "INFO"}).text;
      const std::string replication = client.Do({"INFO", "replication"}).text;
      const bool follows = replication.find("role:master") != std::string::npos ||
                           replication.find("master_link_status:up") != std::string::npos;
      return info.find("cluster_state:ok") != std::string::npos &&
             info.find("cluster_known_nodes:6") != std::string::npos && follows;
    });
  });
  for (const auto& server : servers_) {
    is_up_ = is_up_ && server->Set("cluster-node-timeout", "1000");
  }
}

std::vector<RedisAddress> TestCluster::seeds() const {
  std::vector<RedisAddress> seeds;
  for (const auto& server : servers_) seeds.push_back(server->address());
  return seeds;
}

int TestCluster::PrimaryOf(uint16_t slot) const {
  for (const auto& server : servers_) {
    RespClient client(server->port());
    if (!client.is_open()) continue;
    absl::StatusOr<ClusterMap> map =
        ParseClusterSlots(client.Do({"CLUSTER", "SLOTS"}), server->address());
    if (!map.ok() || map->shard_of_slot[slot] == ClusterMap::kNoShard) continue;
    const RedisAddress primary = map->shards[map->shard_of_slot[slot]].primary;
    for (size_t i = 0; i < servers_.size(); ++i) {
      if (servers_[i]->address() == primary) return static_cast<int>(i);
    }
  }
  return -1;
}

void TestCluster::MoveSlot(uint16_t slot, const std::function<void()>& in_between) {
  RedisServer& from = server(static_cast<size_t>(PrimaryOf(slot)));
  RedisServer* to = nullptr;
  for (uint32_t other = 0; other < kHashSlots && to == nullptr; other += 1000) {
    RedisServer& primary = server(static_cast<size_t>(PrimaryOf(static_cast<uint16_t>(other))));
    if (&primary != &from) to = &primary;
  }
  RespClient source(from.port()), target(to->port());
  const std::string source_id = source.Do({"CLUSTER", "MYID"}).text;
  const std::string target_id = target.Do({"CLUSTER", "MYID"}).text;
  const std::string number = std::to_string(slot);
  target.Do({"CLUSTER", "SETSLOT", number, "IMPORTING", source_id});
  source.Do({"CLUSTER", "SETSLOT", number, "MIGRATING", target_id});
  in_between();
  for (const resp::Value& key : source.Do({"CLUSTER", "GETKEYSINSLOT", number, "1000"}).elements) {
    source.Do({"MIGRATE", "127.0.0.1", std::to_string(to->port()), key.text, "0", "5000"});
  }
  in_between();
  target.Do({"CLUSTER", "SETSLOT", number, "NODE", target_id});
  source.Do({"CLUSTER", "SETSLOT", number, "NODE", target_id});
}

}  // namespace pagoda

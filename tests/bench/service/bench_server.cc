#include "tests/bench/service/bench_server.h"

#include <grpc/grpc.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "pools/memory/huge_pages.h"
#include "server/config/config.h"
#include "server/daemon.h"
#include "server/supervision/processor_share.h"
#include "tests/bench/service/noop_service.h"

namespace pagoda::bench {
namespace {

// Enough that no figure waits for blocks. They have 128 bytes each, because nothing reads or writes
// them.
constexpr uint32_t kBlocks = 262'144;

// For the caches that figures open besides the configured one.
constexpr uint64_t kBroughtBytes = uint64_t{1} << 30;

// For a figure that opens a cache of 64 GiB.
constexpr uint64_t kSparseBytes = uint64_t{65} << 30;

server::Config BenchConfig() {
  server::Config config;
  config.cache.name = absl::StrCat("service-bench-", getpid());
  config.cache.tokens_per_block = kServiceTokensPerBlock;
  config.cache.primary_memory = server::PrimaryMemory::kHost;
  config.cache.huge_pages = HugePages::kOff;
  config.cache.primary = BlockBudget{{kBlocks}};
  config.cache.layers = {{.count = 1, .num_kv_heads = 1, .head_dim = 1}};
  config.server.unix_socket =
      (std::filesystem::temp_directory_path() / (config.cache.name + ".sock")).string();
  config.memory.host = kBroughtBytes;
  config.server.grpc_address = "127.0.0.1:0";
  config.server.http_address = "";
  // The log is full after moments, like that of a daemon that has run for a while.
  config.events.max_events = 1 << 16;
  config.server.drain_timeout = absl::Seconds(1);
  return config;
}

// A file with a tenant's token, until this object is destroyed.
class TokenFile {
 public:
  TokenFile(const std::string& tenant, const char* token)
      : path_((std::filesystem::temp_directory_path() /
               absl::StrCat("service-bench-", getpid(), "-", tenant))
                  .string()) {
    std::ofstream(path_) << token << "\n";
    std::filesystem::permissions(path_, std::filesystem::perms::owner_read);
  }
  ~TokenFile() { std::filesystem::remove(path_); }
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

}  // namespace

int RunBenchServer(ServerRole role) {
  signal(SIGPIPE, SIG_IGN);
  server::AskForShortSlices();  // pagodad does the same.
  server::SetLogLevel(server::LogLevel::kWarning);
  // pagodad makes both calls too.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  grpc_init();
  NoopService noop;
  server::Config config = BenchConfig();
  if (role == ServerRole::kSparse) {
    config.own_cache = false;
    config.memory.host = kSparseBytes;
    config.memory.reservation = Reservation::kSparse;
  }
  std::deque<TokenFile> tokens;
  if (role == ServerRole::kTenants) {
    for (const auto& [name, token] :
         {std::pair("quiet", kQuietToken), {"busy", kBusyTokens[0]}, {"busier", kBusyTokens[1]}}) {
      config.tenants.push_back(
          {.name = name, .credentials = {.tokens_file = tokens.emplace_back(name, token).path()}});
    }
  }
  absl::StatusOr<std::unique_ptr<server::Daemon>> daemon =
      server::Daemon::Start(std::move(config), /*request_drain=*/{}, {&noop});
  if (!daemon.ok()) {
    std::cerr << "service_bench: " << daemon.status().ToString() << "\n";
    return EXIT_FAILURE;
  }
  for (const std::string& endpoint : (*daemon)->grpc_endpoints()) std::cout << endpoint << "\n";
  std::cout << std::flush;
  WaitUntilStdinCloses();
  daemon->reset();
  return EXIT_SUCCESS;
}

}  // namespace pagoda::bench

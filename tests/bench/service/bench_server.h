// The daemon that the service benchmark calls, in a separate process.
#ifndef PAGODA_TESTS_BENCH_SERVICE_BENCH_SERVER_H_
#define PAGODA_TESTS_BENCH_SERVICE_BENCH_SERVER_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/bench/service/child_process.h"

namespace pagoda::bench {

// kSparse: caches that clients open take memory only when it is touched. kTenants: it knows the
// tenants whose tokens are kQuietToken and kBusyTokens, and nobody else.
enum class ServerRole : uint8_t { kPlain, kSparse, kTenants };

inline constexpr char kQuietToken[] = "token-of-the-quiet-tenant-0123456789";
inline constexpr std::array<const char*, 2> kBusyTokens = {"token-of-a-busy-tenant-0123456789",
                                                           "token-of-another-one-0123456789"};

// The main function of a BenchServer's child. Runs a daemon with NoopService in addition to its own
// services, prints its addresses, and ends when its standard input closes. Returns the exit status.
int RunBenchServer(ServerRole role);

// Runs until it is destroyed.
class BenchServer {
 public:
  explicit BenchServer(ServerRole role = ServerRole::kPlain)
      : process_({"--serve", absl::StrCat(static_cast<int>(role))}),
        unix_(process_.ReadLine()),
        tcp_(process_.ReadLine()) {}

  pid_t pid() const { return process_.pid(); }
  const std::string& unix_endpoint() const { return unix_; }
  const std::string& tcp_endpoint() const { return tcp_; }

 private:
  ChildProcess process_;
  const std::string unix_;
  const std::string tcp_;
};

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_SERVICE_BENCH_SERVER_H_

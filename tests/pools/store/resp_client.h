// A client of RESP for tests: one command at a time, and nothing shared with the code under test
// but the parser.
#ifndef PAGODA_TESTS_POOLS_STORE_RESP_CLIENT_H_
#define PAGODA_TESTS_POOLS_STORE_RESP_CLIENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "pools/store/resp.h"

namespace pagoda {

class RespClient {
 public:
  // Connects to 127.0.0.1. is_open() says whether it could.
  explicit RespClient(uint16_t port);

  bool is_open() const { return fd_.valid(); }
  // Sends a command and returns its reply. A reply of the kind kError says what went wrong, also if
  // the connection broke.
  resp::Value Do(const std::vector<std::string>& arguments);

 private:
  FileDescriptor fd_;
  std::string received_;
};

// A port on 127.0.0.1 that nothing listens on now. It is below the ports that the kernel gives to
// clients, and so is the cluster port of a server there, 10,000 above.
uint16_t FreePort();

}  // namespace pagoda

#endif  // PAGODA_TESTS_POOLS_STORE_RESP_CLIENT_H_

#ifndef PAGODA_WIRE_RING_RING_MEMORY_H_
#define PAGODA_WIRE_RING_RING_MEMORY_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/file_descriptor.h"
#include "wire/ring/ring_layout.h"

namespace pagoda::ring {

// The mapped memory of one pair. A child process does not inherit the mapping (MADV_DONTFORK), and
// must not use this object (see InOwner). Thread-compatible.
class Memory {
 public:
  // New memory, for the daemon: sealed and empty. `fd` gets a descriptor of it for the client.
  // REQUIRES: IsRingSize(bytes). nullptr with errno if the system refuses.
  static std::unique_ptr<Memory> Create(uint32_t bytes, FileDescriptor* fd);
  // The memory that the daemon handed out, for a client. nullptr if it is not such memory; `error`
  // then says why.
  static std::unique_ptr<Memory> Map(const FileDescriptor& fd, uint32_t version, uint32_t bytes,
                                     std::string* error);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Bytes of each ring.
  uint32_t bytes() const { return bytes_; }
  Control& control() const;
  char* requests() const { return base_ + kControlBytes; }
  char* answers() const { return requests() + bytes_; }
  // Whether this process mapped the memory: false in a forked child.
  bool InOwner() const;

 private:
  Memory(char* base, uint32_t bytes);

  char* const base_;
  const uint32_t bytes_;
  const pid_t owner_;
};

}  // namespace pagoda::ring

#endif  // PAGODA_WIRE_RING_RING_MEMORY_H_

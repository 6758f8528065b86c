// Requests of clients, from the wire's bytes to the core and back.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/byte_reader.h"
#include "tests/fuzz/core_world.h"

namespace {

// More steps would be slower and find no more: by then a small core has had all of its states.
constexpr int kMaxSteps = 200;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pagoda::fuzz::ByteReader in({data, size});
  pagoda::fuzz::CoreWorld world(in);
  for (int step = 0; step < kMaxSteps && !in.empty(); ++step) world.Step();
  world.Finish();
  return 0;
}

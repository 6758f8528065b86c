// Token ids as protobuf varints.
#ifndef PAGODA_CLIENTS_PYTHON_NATIVE_VARINTS_H_
#define PAGODA_CLIENTS_PYTHON_NATIVE_VARINTS_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace pagoda::python {

inline constexpr size_t kMaxVarintBytes = 5;
// A writer of varints can write so many bytes behind the last one.
inline constexpr size_t kVarintSlack = 64;

// Writes the values one after another. Returns the end of the last one. `out` has space for
// kMaxVarintBytes a value and kVarintSlack. Cost: with AVX-512 0.2 ns a value, else 1.6 ns.
char* PutVarints(std::span<const uint32_t> values, char* out);
// The same for any processor.
char* PutVarintsPlain(std::span<const uint32_t> values, char* out);

}  // namespace pagoda::python

#endif  // PAGODA_CLIENTS_PYTHON_NATIVE_VARINTS_H_

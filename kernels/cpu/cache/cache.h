// Cache writes, cache reads and block copies on the CPU.
#ifndef PAGODA_KERNELS_CPU_CACHE_CACHE_H_
#define PAGODA_KERNELS_CPU_CACHE_CACHE_H_

#include "absl/status/status.h"
#include "kernels/cache_gather.h"
#include "kernels/cache_write.h"
#include "kernels/cpu/attention/attention.h"

namespace pagoda::kernels::cpu {

// All functions are synchronous. Several threads can call them on different token slots. Elements
// are converted to nearest, ties to even. Elements of 8 bits are divided by their scale before the
// conversion, and saturate.

// Errors: those of CheckShapes, and InvalidArgument for a token slot outside the pool; then nothing
// is written.
absl::Status WriteCache(const CacheWriteParams& params, const Execution& execution = {});

// For pools with scales per slot: sets or raises the scales of the blocks that WriteCache will
// write with the same params, by the rules of kernels/float8_scales.h. A raise also changes the
// block's earlier tokens, so nothing else may read or write these blocks meanwhile. Does nothing
// for other pools. The tokens of a block are in ascending order, and its earlier tokens are
// written. REQUIRES: kv.scales is writable. Errors: those of WriteCache; then nothing is changed.
absl::Status FitScales(const CacheWriteParams& params, const Execution& execution = {});

// Errors: those of CheckShapes, and InvalidArgument for starts that do not ascend from 0, a
// negative position, a table that is too short, or a slot outside the pool; then nothing is
// written.
absl::Status FillCache(const CacheFillParams& params, const Execution& execution = {});

// Has the errors of FillCache. On an error it writes nothing.
absl::Status GatherCache(const CacheGatherParams& params, const Execution& execution = {});

}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_CPU_CACHE_CACHE_H_

// What a rendering can use.
#ifndef PAGODA_ENGINE_TEXT_JINJA_VALUES_RENDER_LIMITS_H_
#define PAGODA_ENGINE_TEXT_JINJA_VALUES_RENDER_LIMITS_H_

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace pagoda::jinja {

// A template is not trusted. A rendering that needs more than this fails.
struct RenderLimits {
  int64_t steps = 20'000'000;
  size_t memory_bytes = size_t{128} << 20;  // Bytes of live values and of output.
  size_t output_bytes = size_t{32} << 20;
  int depth = 600;  // Nested expressions, statements and macros.
  absl::Duration time = absl::Seconds(5);
};

}  // namespace pagoda::jinja

#endif  // PAGODA_ENGINE_TEXT_JINJA_VALUES_RENDER_LIMITS_H_

#include "engine/sampling/sampling_loops_body.h"

namespace pagoda {

const SamplingLoops kAvx512Sampling = kSamplingLoops;

}  // namespace pagoda

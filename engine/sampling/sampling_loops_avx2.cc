#include "engine/sampling/sampling_loops_body.h"

namespace pagoda {

const SamplingLoops kAvx2Sampling = kSamplingLoops;

}  // namespace pagoda

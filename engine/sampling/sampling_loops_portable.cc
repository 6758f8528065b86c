#include "engine/sampling/sampling_loops_body.h"

namespace pagoda {

const SamplingLoops kPortableSampling = kSamplingLoops;

}  // namespace pagoda

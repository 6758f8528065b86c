#include "engine/model/cpu/loops/vector_loops_body.h"

namespace pagoda {

const VectorLoops kAvx2Loops = kLoops;

}  // namespace pagoda

#include "engine/model/cpu/loops/vector_loops_body.h"

namespace pagoda {

const VectorLoops kPortableLoops = kLoops;

}  // namespace pagoda

// Faults that tests plant in the core to see that they are found. In an ordinary build
// PAGODA_FAULT(...) is `false` and costs nothing.
#ifndef PAGODA_MANAGER_FAULT_H_
#define PAGODA_MANAGER_FAULT_H_

#ifdef PAGODA_PLANTED_FAULTS

namespace pagoda {

enum class Fault {
  kNone,
#define X(name, what) k##name,
#include "manager/faults.def"
#undef X
};

// The one that the environment variable PAGODA_FAULT names, by the name in faults.def; kNone where
// it is not set. A name that does not exist stops the process.
Fault PlantedFault();

}  // namespace pagoda

#define PAGODA_FAULT(name) (::pagoda::PlantedFault() == ::pagoda::Fault::k##name)

#else

#define PAGODA_FAULT(name) false

#endif

#endif  // PAGODA_MANAGER_FAULT_H_

// What a planted copy of a core file asks: PAGODA_FAULT(Name), is this fault on? plant.py writes
// the copies, and faults.def with the names.
#ifndef PAGODA_TESTS_MUTATION_FAULT_H_
#define PAGODA_TESTS_MUTATION_FAULT_H_

namespace pagoda {

enum class Fault {
  kNone,
#define X(name) k##name,
#include "tests/mutation/faults.def"
#undef X
};

// The fault that the environment variable PAGODA_FAULT names; kNone if it is not set. A name that
// does not exist stops the process.
Fault PlantedFault();

}  // namespace pagoda

#define PAGODA_FAULT(name) (::pagoda::PlantedFault() == ::pagoda::Fault::k##name)

#endif  // PAGODA_TESTS_MUTATION_FAULT_H_

// The heap memory that this process uses, counted at each allocation.
#ifndef PAGODA_TESTS_EVENTS_HEAP_IN_USE_H_
#define PAGODA_TESTS_EVENTS_HEAP_IN_USE_H_

#include <cstddef>

namespace pagoda {

// The bytes that operator new was asked for and operator delete has not got back, without the
// allocator's own overhead. Thread-safe.
size_t HeapInUse();
// How often operator new was called. Thread-safe.
size_t HeapAllocations();

}  // namespace pagoda

#endif  // PAGODA_TESTS_EVENTS_HEAP_IN_USE_H_

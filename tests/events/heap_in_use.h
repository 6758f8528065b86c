// The heap that this process has in use, counted where it is taken.
#ifndef PAGODA_TESTS_EVENTS_HEAP_IN_USE_H_
#define PAGODA_TESTS_EVENTS_HEAP_IN_USE_H_

#include <cstddef>

namespace pagoda {

// Bytes that operator new was asked for and operator delete has not got back, without what the
// allocator adds. Thread-safe.
size_t HeapInUse();
// How often operator new was called. Thread-safe.
size_t HeapAllocations();

}  // namespace pagoda

#endif  // PAGODA_TESTS_EVENTS_HEAP_IN_USE_H_

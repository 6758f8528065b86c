// Preloaded into a daemon (LD_PRELOAD): while the file NO_THREADS_FILE exists, the system refuses
// every new thread, as a limit of threads does. A limit itself does not hold for root.
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*run)(void*), void* argument) noexcept {
  static const auto create =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  const char* const file = std::getenv("NO_THREADS_FILE");
  if (file != nullptr && access(file, F_OK) == 0) return EAGAIN;
  return create(thread, attributes, run, argument);
}

// The extension module pagoda._native. The package works without it: see DEVELOPING.md.
#include "clients/python/native/python_api.h"

namespace {

// Initialised in one phase, so CPython loads it once in a process, and its types can be global.
PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "pagoda._native",
    "The fast parts of the package pagoda. Private: any version can change it.",
    -1,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__native() {
  pagoda::python::Object module(PyModule_Create(&definition));
  if (module == nullptr || !pagoda::python::AddTokens(module.get()) ||
      !pagoda::python::AddRing(module.get())) {
    return nullptr;
  }
  return module.release();
}

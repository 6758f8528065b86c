// CPython's stable interface, and what owns its objects. One build serves every CPython from 3.11
// on.
#ifndef PAGODA_CLIENTS_PYTHON_NATIVE_PYTHON_API_H_
#define PAGODA_CLIENTS_PYTHON_NATIVE_PYTHON_API_H_

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <memory>
#include <new>

namespace pagoda::python {

struct DropReference {
  void operator()(PyObject* object) const { Py_DECREF(object); }
};
// Owns a reference. nullptr: an exception is set.
using Object = std::unique_ptr<PyObject, DropReference>;

// Runs `body`, which returns a new reference, or nullptr with an exception. No C++ exception may
// pass through CPython.
template <class Body>
PyObject* Guarded(const Body& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
}

// The parts of the module. Each adds its types and functions. False with an exception.
bool AddTokens(PyObject* module);
bool AddRing(PyObject* module);

}  // namespace pagoda::python

#endif  // PAGODA_CLIENTS_PYTHON_NATIVE_PYTHON_API_H_

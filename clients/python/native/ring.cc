// The client's side of a pair of rings as a Python object.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "clients/python/native/python_api.h"
#include "wire/ring/ring_client.h"

namespace pagoda::python {
namespace {

using ring::Clock;
using Outcome = ring::Client::Outcome;

// How long a call waits before it checks for signals, such as Ctrl-C.
constexpr std::chrono::milliseconds kBetweenSignals(100);
// The longest timeout, so that no deadline overflows.
constexpr double kMaxSeconds = 1e6;

// What `call` returns if it has neither an answer nor a refusal.
enum Without : long {
  kNotSent = 1,         // Nothing was sent.
  kAnswerTooLarge = 2,  // The batch ran. Its answer must be fetched over gRPC.
  kTimeout = 3,         // Whether the batch runs is unknown. The pair is over.
  kEnded = 4,           // Whether the batch ran is unknown. The pair is over.
};

// Releases the interpreter's lock while it lives.
class WithoutInterpreter {
 public:
  WithoutInterpreter() : state_(PyEval_SaveThread()) {}
  ~WithoutInterpreter() { PyEval_RestoreThread(state_); }
  WithoutInterpreter(const WithoutInterpreter&) = delete;

 private:
  PyThreadState* state_;
};

// A pair, and the turn of the thread that uses it. The turn is a lock of CPython. The interpreter's
// lock guards the other fields; a thread in `Exchange` uses `client` without it, under its turn.
// A signal handler can run in `Exchange`. Its batches go over gRPC, because it would wait for the
// turn of its own thread.
class Pair {
 public:
  explicit Pair(std::unique_ptr<ring::Client> opened) : client_(std::move(opened)) {}
  ~Pair() {
    if (turn_ != nullptr) PyThread_free_lock(turn_);
  }
  Pair(const Pair&) = delete;
  bool has_lock() const { return turn_ != nullptr; }

  // Whether requests can be sent. A forked child must not use its parent's pair.
  bool is_open() const { return client_ != nullptr && !closed_ && getpid() == owner_; }
  const std::string& reason() const { return reason_; }
  const std::string& error() const { return error_; }

  // The answer as bytes, a refusal as a tuple of its bytes, or a Without. nullptr with an
  // exception.
  PyObject* Call(std::string_view request, Clock::time_point deadline);
  // Ends the pair, now or after the call that uses it.
  void Close();

 private:
  // The turn of the calling thread, until this is destroyed.
  struct Turn {
    explicit Turn(Pair* of) : pair(of) { pair->holder_ = PyThread_get_thread_ident(); }
    Turn(const Turn&) = delete;
    ~Turn() { pair->GiveTurn(); }
    Pair* const pair;
  };

  bool TakeTurn(Clock::time_point deadline);
  void GiveTurn() noexcept;
  PyObject* Exchange(std::string_view request, Clock::time_point deadline);
  // REQUIRES: the caller has the turn.
  void End(std::string_view error) noexcept;

  const PyThread_type_lock turn_ = PyThread_allocate_lock();
  std::optional<unsigned long> holder_;  // NOLINT: The thread that has the turn, as CPython says.
  const pid_t owner_ = getpid();
  std::unique_ptr<ring::Client> client_;  // nullptr: the pair is over.
  bool closed_ = false;
  std::string reason_;
  std::string error_;
};

PyObject* Pair::Call(std::string_view request, Clock::time_point deadline) {
  // The lock can be taken in a forked child, by a thread that the child does not have.
  if (!is_open() || holder_ == PyThread_get_thread_ident() || !TakeTurn(deadline)) {
    return PyLong_FromLong(kNotSent);
  }
  const Turn turn(this);
  // A batch that nobody waits for any more is not sent, and the pair goes on.
  if (!is_open() || Clock::now() >= deadline) return PyLong_FromLong(kNotSent);
  try {
    return Exchange(request, deadline);
  } catch (const std::bad_alloc&) {
    // The answer can still come, and no later request may take it for its own.
    End("out of memory");
    throw;
  }
}

void Pair::Close() {
  closed_ = true;
  if (getpid() != owner_ || PyThread_acquire_lock(turn_, NOWAIT_LOCK) == 0) return;
  GiveTurn();
}

bool Pair::TakeTurn(Clock::time_point deadline) {
  if (PyThread_acquire_lock(turn_, NOWAIT_LOCK) != 0) return true;
  const auto left = std::chrono::ceil<std::chrono::microseconds>(deadline - Clock::now()).count();
  if (left <= 0) return false;
  const WithoutInterpreter released;
  return PyThread_acquire_lock_timed(turn_, left, 0) == PY_LOCK_ACQUIRED;
}

void Pair::GiveTurn() noexcept {
  if (closed_) End("this client is closed");
  holder_.reset();
  PyThread_release_lock(turn_);
}

PyObject* Pair::Exchange(std::string_view request, Clock::time_point deadline) {
  const Outcome sent = client_->Send(request);
  if (sent == Outcome::kEnded) End(client_->error());
  if (sent != Outcome::kOk) return PyLong_FromLong(kNotSent);
  std::string answer;
  Outcome outcome;
  do {
    {
      const WithoutInterpreter released;
      outcome = client_->Receive(std::min(deadline, Clock::now() + kBetweenSignals), &answer);
    }
    if (outcome != Outcome::kTimeout) break;
    if (PyErr_CheckSignals() != 0) {
      End("a signal has interrupted a call");
      return nullptr;
    }
  } while (Clock::now() < deadline);
  switch (outcome) {
    case Outcome::kOk:
      return PyBytes_FromStringAndSize(answer.data(), static_cast<Py_ssize_t>(answer.size()));
    case Outcome::kRefused:
      return Py_BuildValue("(y#)", answer.data(), static_cast<Py_ssize_t>(answer.size()));
    case Outcome::kAnswerTooLarge:
      return PyLong_FromLong(kAnswerTooLarge);
    case Outcome::kTimeout:
      // The answer can still come, and no later request may take it for its own.
      End("an answer did not come in time");
      return PyLong_FromLong(kTimeout);
    default:
      End(client_->error());
      return PyLong_FromLong(kEnded);
  }
}

void Pair::End(std::string_view error) noexcept {
  if (client_ == nullptr) return;
  try {
    error_ = error;
    reason_ = client_->reason();
  } catch (const std::bad_alloc&) {  // Then nobody learns why.
  }
  client_.reset();
}

struct RingObject {
  PyObject_HEAD  // NOLINT
      Pair* pair;
};

RingObject* Of(PyObject* self) { return reinterpret_cast<RingObject*>(self); }

PyObject* NewRing(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  int memory_fd;
  int wake_fd;
  unsigned int version;
  unsigned int bytes;
  if (keywords != nullptr && PyDict_Size(keywords) != 0) {
    PyErr_SetString(PyExc_TypeError, "Ring() takes no keyword arguments");
    return nullptr;
  }
  if (!PyArg_ParseTuple(arguments, "iiII:Ring", &memory_fd, &wake_fd, &version, &bytes)) {
    return nullptr;
  }
  return Guarded([&]() -> PyObject* {
    // dup distinguishes a descriptor from a number, and the caller keeps its own.
    FileDescriptor memory(fcntl(memory_fd, F_DUPFD_CLOEXEC, 0));
    FileDescriptor wake(memory.valid() ? fcntl(wake_fd, F_DUPFD_CLOEXEC, 0) : -1);
    if (!wake.valid()) return PyErr_SetFromErrno(PyExc_OSError);
    std::string error;
    auto opened = ring::Client::Open(std::move(memory), std::move(wake), version, bytes, &error);
    if (opened == nullptr) {
      PyErr_SetString(PyExc_ValueError, error.c_str());
      return nullptr;
    }
    auto pair = std::make_unique<Pair>(std::move(opened));
    if (!pair->has_lock()) return PyErr_NoMemory();
    auto* allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
    PyObject* self = allocate(type, 0);
    if (self != nullptr) Of(self)->pair = pair.release();
    return self;
  });
}

void FreeRing(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete Of(self)->pair;
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

PyObject* CallRing(PyObject* self, PyObject* arguments) {
  PyObject* request;
  double seconds;
  if (!PyArg_ParseTuple(arguments, "Sd:call", &request, &seconds)) return nullptr;
  if (std::isnan(seconds)) {
    PyErr_SetString(PyExc_ValueError, "a timeout must be a number");
    return nullptr;
  }
  const std::chrono::duration<double> wait(std::clamp(seconds, 0.0, kMaxSeconds));
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(wait);
  return Guarded([&] {
    const auto size = static_cast<size_t>(PyBytes_Size(request));
    return Of(self)->pair->Call({PyBytes_AsString(request), size}, deadline);
  });
}

PyObject* CloseRing(PyObject* self, PyObject* /*nothing*/) {
  return Guarded([&] {
    Of(self)->pair->Close();
    Py_INCREF(Py_None);
    return Py_None;
  });
}

PyObject* IsOpen(PyObject* self, void* /*closure*/) {
  return PyBool_FromLong(Of(self)->pair->is_open());
}
PyObject* Reason(PyObject* self, void* /*closure*/) {
  const std::string& reason = Of(self)->pair->reason();
  return PyBytes_FromStringAndSize(reason.data(), static_cast<Py_ssize_t>(reason.size()));
}
PyObject* Error(PyObject* self, void* /*closure*/) {
  const std::string& error = Of(self)->pair->error();
  return PyUnicode_DecodeUTF8(error.data(), static_cast<Py_ssize_t>(error.size()), "replace");
}

PyMethodDef methods[] = {
    {"call", CallRing, METH_VARARGS,
     "call(request, timeout): sends a serialized SessionRequest and waits for its answer at most "
     "`timeout` seconds. Returns the serialized SessionResponse. If the daemon refused the batch "
     "as a whole, returns a tuple with the serialized google.rpc.Status. Without an answer: "
     "NOT_SENT, ANSWER_TOO_LARGE, TIMEOUT or ENDED. Threads take turns. NOT_SENT also if `timeout` "
     "is over before the batch can be sent."},
    {"close", CloseRing, METH_NOARGS, "close(): ends the pair when no call uses it any more."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef attributes[] = {
    {"is_open", IsOpen, nullptr, "Whether requests can be sent.", nullptr},
    {"reason", Reason, nullptr,
     "The serialized google.rpc.Status by which the daemon has ended the pair; b\"\" if there is "
     "none.",
     nullptr},
    {"error", Error, nullptr, "Why the pair is over, as text.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

constexpr const char* kDoc =
    "Ring(memory_fd, wake_fd, version, bytes): the client's side of a pair of rings, from the "
    "answer on the map socket. It duplicates the descriptors. ValueError: this client cannot use "
    "the pair.";

PyType_Slot slots[] = {{Py_tp_doc, const_cast<char*>(kDoc)},
                       {Py_tp_new, reinterpret_cast<void*>(NewRing)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(FreeRing)},
                       {Py_tp_methods, methods},
                       {Py_tp_getset, attributes},
                       {0, nullptr}};
PyType_Spec spec = {"pagoda._native.Ring", sizeof(RingObject), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

bool AddRing(PyObject* module) {
  const Object type(PyType_FromSpec(&spec));
  return type != nullptr && PyModule_AddObjectRef(module, "Ring", type.get()) == 0 &&
         PyModule_AddIntConstant(module, "NOT_SENT", kNotSent) == 0 &&
         PyModule_AddIntConstant(module, "ANSWER_TOO_LARGE", kAnswerTooLarge) == 0 &&
         PyModule_AddIntConstant(module, "TIMEOUT", kTimeout) == 0 &&
         PyModule_AddIntConstant(module, "ENDED", kEnded) == 0;
}

}  // namespace pagoda::python

// Token ids as a packed field of a message.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <type_traits>

#include "clients/python/native/python_api.h"
#include "clients/python/native/varints.h"

namespace pagoda::python {
namespace {

constexpr size_t kMaxTokenBytes = 5;
// The field's tag and the length of its content, at their longest.
constexpr size_t kHeaderBytes = 10;

bool OutOfRange(PyObject* value) {
  PyErr_Format(PyExc_ValueError, "Value out of range: %S", value);
  return false;
}

bool TokenFromInt(PyObject* value, uint32_t* token) {
  int overflow = 0;
  const int64_t read = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (read == -1 && PyErr_Occurred()) return false;
  if (overflow != 0 || read < 0 || read > int64_t{UINT32_MAX}) return OutOfRange(value);
  *token = static_cast<uint32_t>(read);
  return true;
}

// Anything with __index__, which can run any code.
bool TokenFromIndex(PyObject* item, uint32_t* token) {
  Py_INCREF(item);
  const Object held(item);
  const Object value(PyNumber_Index(item));
  return value != nullptr && TokenFromInt(value.get(), token);
}

// The growing field.
class Field {
 public:
  void Begin(Py_ssize_t tokens) {
    tokens_ = tokens;
    const size_t most = kHeaderBytes + static_cast<size_t>(tokens) * kMaxTokenBytes;
    bytes_ = std::make_unique_for_overwrite<char[]>(most + kVarintBytes);
    end_ = bytes_.get() + kHeaderBytes;
  }

  // As Begin was told.
  Py_ssize_t tokens() const { return tokens_; }
  // REQUIRES: at most tokens() calls.
  void Add(uint32_t token) { end_ = PutVarint(token, end_); }

  // The field of this number. Without tokens it is empty.
  PyObject* End(uint32_t number) const {
    const char* content = bytes_.get() + kHeaderBytes;
    const auto size = static_cast<size_t>(end_ - content);
    if (size == 0) return PyBytes_FromStringAndSize(nullptr, 0);
    if (size > size_t{INT32_MAX}) {
      PyErr_SetString(PyExc_ValueError, "the tokens take more than 2 GiB");
      return nullptr;
    }
    char header[kHeaderBytes + kVarintBytes];
    const char* header_end =
        PutVarint(static_cast<uint32_t>(size), PutVarint(number * 8 + 2, header));
    // The header is put directly in front of the content.
    const auto header_size = static_cast<size_t>(header_end - header);
    char* begin = bytes_.get() + kHeaderBytes - header_size;
    std::memcpy(begin, header, header_size);
    return PyBytes_FromStringAndSize(begin, end_ - begin);
  }

 private:
  std::unique_ptr<char[]> bytes_;
  Py_ssize_t tokens_ = 0;
  char* end_ = nullptr;
};

bool AddList(PyObject* list, Field* field) {
  field->Begin(PyList_Size(list));
  for (Py_ssize_t i = 0; i < field->tokens(); ++i) {
    PyObject* item = PyList_GetItem(list, i);  // Borrowed. NULL if the list has become shorter.
    if (item == nullptr) return false;
    uint32_t token;
    if (!(Py_IS_TYPE(item, &PyLong_Type) ? TokenFromInt(item, &token)
                                         : TokenFromIndex(item, &token))) {
      return false;
    }
    field->Add(token);
  }
  return true;
}

template <class Integer>
bool AddArray(const Py_buffer& view, Field* field) {
  const auto* at = static_cast<const char*>(view.buf);
  for (Py_ssize_t i = 0; i < view.shape[0]; ++i, at += view.strides[0]) {
    Integer value;
    std::memcpy(&value, at, sizeof(value));
    bool fits = true;
    if constexpr (std::is_signed_v<Integer>) fits = value >= 0;
    if constexpr (sizeof(Integer) > 4) fits = fits && value <= Integer{UINT32_MAX};
    if (!fits) {
      const Object shown(std::is_signed_v<Integer>
                             ? PyLong_FromLongLong(static_cast<int64_t>(value))
                             : PyLong_FromUnsignedLongLong(static_cast<uint64_t>(value)));
      return shown != nullptr && OutOfRange(shown.get());
    }
    field->Add(static_cast<uint32_t>(value));
  }
  return true;
}

template <class Small, class Short, class Int, class Long>
bool AddOfSize(const Py_buffer& view, Field* field) {
  switch (view.itemsize) {
    case 1:
      return AddArray<Small>(view, field);
    case 2:
      return AddArray<Short>(view, field);
    case 4:
      return AddArray<Int>(view, field);
    default:
      return AddArray<Long>(view, field);
  }
}

enum class Sign { kNone, kSigned, kUnsigned };

// Whether the elements are integers in this machine's byte order.
Sign SignOf(const Py_buffer& view) {
  std::string_view format = view.format == nullptr ? "B" : view.format;
  if (!format.empty() && (format[0] == '@' || format[0] == '=' || format[0] == '<')) {
    format.remove_prefix(1);
  }
  const Py_ssize_t size = view.itemsize;
  if (format.size() != 1 || (size != 1 && size != 2 && size != 4 && size != 8)) return Sign::kNone;
  if (std::string_view("bhilqn").find(format[0]) != std::string_view::npos) return Sign::kSigned;
  if (std::string_view("BHILQN").find(format[0]) != std::string_view::npos) return Sign::kUnsigned;
  return Sign::kNone;
}

// Holds an array's buffer.
class Buffer {
 public:
  ~Buffer() {
    if (held_) PyBuffer_Release(&view_);
  }
  // False with an exception.
  bool Get(PyObject* array) {
    held_ = PyObject_GetBuffer(array, &view_, PyBUF_STRIDED_RO | PyBUF_FORMAT) == 0;
    return held_;
  }
  const Py_buffer& view() const { return view_; }

 private:
  Py_buffer view_;
  bool held_ = false;
};

bool AddBuffer(PyObject* array, Field* field) {
  Buffer buffer;
  if (!buffer.Get(array)) return false;
  const Py_buffer& view = buffer.view();
  const Sign sign = SignOf(view);
  if (view.ndim != 1 || sign == Sign::kNone) {
    PyErr_SetString(PyExc_TypeError, "tokens must be one row of integers");
    return false;
  }
  field->Begin(view.shape[0]);
  return sign == Sign::kSigned ? AddOfSize<int8_t, int16_t, int32_t, int64_t>(view, field)
                               : AddOfSize<uint8_t, uint16_t, uint32_t, uint64_t>(view, field);
}

PyObject* Packed(PyObject* /*module*/, PyObject* arguments) {
  unsigned int number;
  PyObject* tokens;
  if (!PyArg_ParseTuple(arguments, "IO:packed", &number, &tokens)) return nullptr;
  if (number == 0 || number >= 1u << 29) {
    PyErr_SetString(PyExc_ValueError, "no field has this number");
    return nullptr;
  }
  return Guarded([&]() -> PyObject* {
    Field field;
    const bool added = PyList_Check(tokens) ? AddList(tokens, &field) : AddBuffer(tokens, &field);
    return added ? field.End(number) : nullptr;
  });
}

PyMethodDef functions[] = {
    {"packed", Packed, METH_VARARGS,
     "packed(number, tokens): a packed field of uint32 with this number, serialized. `tokens` is a "
     "list of integers or a buffer with one row of integers. ValueError: an integer is no uint32. "
     "TypeError: something else is no integer."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool AddTokens(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace pagoda::python

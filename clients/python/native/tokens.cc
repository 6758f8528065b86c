// Token ids as a packed field of a message: their memory is the field's content.
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

#include "clients/python/native/python_api.h"

namespace pagoda::python {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

// The same rules and messages as token_list in values.py. `index`: the place in the tokens.
bool OutOfRange(Py_ssize_t index, PyObject* value) {
  PyErr_Format(PyExc_ValueError, "token %zd is %S; a token id is from 0 to 4294967295", index,
               value);
  return false;
}

bool NoInteger(Py_ssize_t index, PyObject* item) {
  PyErr_Format(PyExc_TypeError, "token %zd is %.100R, which is no integer", index, item);
  return false;
}

bool TokenFromInt(Py_ssize_t index, PyObject* value, uint32_t* token) {
  const long read = PyLong_AsLong(value);
  *token = static_cast<uint32_t>(read);
  if (std::in_range<uint32_t>(read)) [[likely]]
    return true;
  if (read == -1 && PyErr_Occurred() != nullptr) {
    if (PyErr_ExceptionMatches(PyExc_OverflowError) == 0) return false;
    PyErr_Clear();
  }
  return OutOfRange(index, value);
}

// Anything with __index__, which can run any code. A bool is an error of the caller.
bool TokenFromIndex(Py_ssize_t index, PyObject* item, uint32_t* token) {
  Py_INCREF(item);
  const Object held(item);
  if (PyBool_Check(item)) return NoInteger(index, item);
  const Object value(PyNumber_Index(item));
  if (value != nullptr) return TokenFromInt(index, value.get(), token);
  if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) return false;
  PyErr_Clear();
  return NoInteger(index, item);
}

// A packed field of fixed32, in the bytes object that Python gets.
class Field {
 public:
  // `number`: of the field. Without tokens the field is empty. False with an exception.
  bool Begin(uint32_t number, Py_ssize_t tokens) {
    if (tokens > INT32_MAX / kTokenBytes) {
      PyErr_SetString(PyExc_ValueError, "the tokens take more than 2 GiB");
      return false;
    }
    std::array<char, 2 * kMaxVarintBytes> header;
    char* end = header.data();
    if (tokens != 0) {
      end = PutVarint(number * 8 + 2, end);
      end = PutVarint(static_cast<uint32_t>(tokens * kTokenBytes), end);
    }
    bytes_.reset(PyBytes_FromStringAndSize(nullptr, end - header.data() + tokens * kTokenBytes));
    if (bytes_ == nullptr) return false;
    tokens_ = std::copy(header.data(), end, PyBytes_AsString(bytes_.get()));
    return true;
  }

  // REQUIRES: `index` is below the number of tokens that Begin got.
  void Put(Py_ssize_t index, uint32_t token) {
    std::memcpy(tokens_ + index * kTokenBytes, &token, sizeof(token));
  }
  // All tokens, from memory without gaps.
  void PutAll(const void* tokens, Py_ssize_t count) {
    std::copy_n(static_cast<const char*>(tokens), count * kTokenBytes, tokens_);
  }

  // REQUIRES: every token was put.
  PyObject* End() { return bytes_.release(); }

 private:
  static constexpr Py_ssize_t kTokenBytes = 4;
  static constexpr size_t kMaxVarintBytes = 5;

  static char* PutVarint(uint32_t value, char* out) {
    for (; value >= 0x80; value >>= 7) *out++ = static_cast<char>(value | 0x80);
    *out++ = static_cast<char>(value);
    return out;
  }

  Object bytes_;
  char* tokens_ = nullptr;
};

bool PutList(PyObject* list, uint32_t number, Field* field) {
  const Py_ssize_t count = PyList_Size(list);
  if (!field->Begin(number, count)) return false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PyList_GetItem(list, i);  // Borrowed. NULL if the list has become shorter.
    if (item == nullptr) return false;
    uint32_t token;
    if (!(Py_IS_TYPE(item, &PyLong_Type) ? TokenFromInt(i, item, &token)
                                         : TokenFromIndex(i, item, &token))) {
      return false;
    }
    field->Put(i, token);
  }
  return true;
}

template <class Integer>
bool PutArray(const Py_buffer& view, Field* field) {
  if (std::is_same_v<Integer, uint32_t> && view.strides[0] == sizeof(Integer)) {
    field->PutAll(view.buf, view.shape[0]);
    return true;
  }
  const auto* element = static_cast<const char*>(view.buf);
  for (Py_ssize_t i = 0; i < view.shape[0]; ++i, element += view.strides[0]) {
    Integer value;
    std::memcpy(&value, element, sizeof(value));
    if (!std::in_range<uint32_t>(value)) [[unlikely]] {
      const Object shown(std::is_signed_v<Integer>
                             ? PyLong_FromLongLong(static_cast<int64_t>(value))
                             : PyLong_FromUnsignedLongLong(static_cast<uint64_t>(value)));
      return shown != nullptr && OutOfRange(i, shown.get());
    }
    field->Put(i, static_cast<uint32_t>(static_cast<int64_t>(value)));
  }
  return true;
}

template <class Small, class Short, class Int, class Long>
bool PutOfSize(const Py_buffer& view, Field* field) {
  switch (view.itemsize) {
    case 1:
      return PutArray<Small>(view, field);
    case 2:
      return PutArray<Short>(view, field);
    case 4:
      return PutArray<Int>(view, field);
    default:
      return PutArray<Long>(view, field);
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

bool PutBuffer(PyObject* array, uint32_t number, Field* field) {
  Buffer buffer;
  if (!buffer.Get(array)) return false;
  const Py_buffer& view = buffer.view();
  const Sign sign = SignOf(view);
  if (view.ndim != 1 || sign == Sign::kNone) {
    PyErr_SetString(PyExc_TypeError, "tokens must be one row of integers");
    return false;
  }
  if (!field->Begin(number, view.shape[0])) return false;
  return sign == Sign::kSigned ? PutOfSize<int8_t, int16_t, int32_t, int64_t>(view, field)
                               : PutOfSize<uint8_t, uint16_t, uint32_t, uint64_t>(view, field);
}

PyObject* Packed(PyObject* /*module*/, PyObject* arguments) {
  unsigned int number;
  PyObject* tokens;
  if (!PyArg_ParseTuple(arguments, "IO:packed", &number, &tokens)) return nullptr;
  if (number == 0 || number >= 1u << 29) {
    PyErr_SetString(PyExc_ValueError, "no field has this number");
    return nullptr;
  }
  Field field;
  const bool put =
      PyList_Check(tokens) ? PutList(tokens, number, &field) : PutBuffer(tokens, number, &field);
  return put ? field.End() : nullptr;
}

PyMethodDef functions[] = {
    {"packed", Packed, METH_VARARGS,
     "packed(number, tokens): a packed field of fixed32 with this number, serialized. `tokens` is "
     "a list of integers or a buffer with one row of integers. ValueError: an integer is no "
     "uint32. TypeError: something else is no integer. The message has the index."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool AddTokens(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace pagoda::python

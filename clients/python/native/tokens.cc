// Token ids as a packed field of a message.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "clients/python/native/python_api.h"
#include "clients/python/native/varints.h"

namespace pagoda::python {
namespace {

// The field's tag and the length of its content, at their longest.
constexpr size_t kHeaderBytes = 2 * kMaxVarintBytes;

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

// The growing field.
class Field {
 public:
  void Begin(Py_ssize_t tokens) {
    const size_t most = kHeaderBytes + static_cast<size_t>(tokens) * kMaxVarintBytes;
    bytes_ = std::make_unique_for_overwrite<char[]>(most + kVarintSlack);
    end_ = bytes_.get() + kHeaderBytes;
  }

  // REQUIRES: not more tokens than Begin was told.
  void Add(std::span<const uint32_t> tokens) { end_ = PutVarints(tokens, end_); }

  // The field of this number. Without tokens it is empty.
  PyObject* End(uint32_t number) const {
    const char* content = bytes_.get() + kHeaderBytes;
    const auto size = static_cast<size_t>(end_ - content);
    if (size == 0) return PyBytes_FromStringAndSize(nullptr, 0);
    if (size > size_t{INT32_MAX}) {
      PyErr_SetString(PyExc_ValueError, "the tokens take more than 2 GiB");
      return nullptr;
    }
    const std::array<uint32_t, 2> header = {number * 8 + 2, static_cast<uint32_t>(size)};
    std::array<char, kHeaderBytes + kVarintSlack> header_bytes;
    const auto header_size =
        static_cast<size_t>(PutVarints(header, header_bytes.data()) - header_bytes.data());
    // Directly in front of the content.
    char* begin = bytes_.get() + kHeaderBytes - header_size;
    std::memcpy(begin, header_bytes.data(), header_size);
    return PyBytes_FromStringAndSize(begin, end_ - begin);
  }

 private:
  std::unique_ptr<char[]> bytes_;
  char* end_ = nullptr;
};

// Adds `count` tokens. `read(i, token)` reads one; false with an exception.
template <class Read>
bool AddTokensOf(Py_ssize_t count, const Read& read, Field* field) {
  field->Begin(count);
  std::array<uint32_t, 512> tokens;
  for (Py_ssize_t i = 0; i < count;) {
    size_t read_tokens = 0;
    for (; i < count && read_tokens < tokens.size(); ++i) {
      if (!read(i, &tokens[read_tokens++])) return false;
    }
    field->Add(std::span(tokens).first(read_tokens));
  }
  return true;
}

bool AddList(PyObject* list, Field* field) {
  const auto read = [list](Py_ssize_t i, uint32_t* token) {
    PyObject* item = PyList_GetItem(list, i);  // Borrowed. NULL if the list has become shorter.
    if (item == nullptr) return false;
    return Py_IS_TYPE(item, &PyLong_Type) ? TokenFromInt(i, item, token)
                                          : TokenFromIndex(i, item, token);
  };
  return AddTokensOf(PyList_Size(list), read, field);
}

template <class Integer>
bool AddArray(const Py_buffer& view, Field* field) {
  const auto read = [&view](Py_ssize_t i, uint32_t* token) {
    Integer value;
    std::memcpy(&value, static_cast<const char*>(view.buf) + i * view.strides[0], sizeof(value));
    // By way of 64 bits: a negative number is refused below.
    *token = static_cast<uint32_t>(static_cast<int64_t>(value));
    if (std::in_range<uint32_t>(value)) [[likely]]
      return true;
    const Object shown(std::is_signed_v<Integer>
                           ? PyLong_FromLongLong(static_cast<int64_t>(value))
                           : PyLong_FromUnsignedLongLong(static_cast<uint64_t>(value)));
    return shown != nullptr && OutOfRange(i, shown.get());
  };
  return AddTokensOf(view.shape[0], read, field);
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
     "TypeError: something else is no integer. The message has the index."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool AddTokens(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace pagoda::python

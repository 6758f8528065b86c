// The answers of frequent batches as Python objects.
#include <initializer_list>
#include <string_view>

#include "clients/python/native/answer_reader.h"
#include "clients/python/native/python_api.h"

namespace pagoda::python {
namespace {

PyStructSequence_Field table_fields[] = {
    {"window_size", "Tokens; 0 is full attention."},
    {"first_block", "The place of the first entry in the sequence's table."},
    {"handles", "The entries as bytes: three uint32 each, as in a BlockHandle."},
    {nullptr, nullptr}};
PyStructSequence_Desc table_type = {"pagoda._native.BlockTable", "A v1.BlockTable.", table_fields,
                                    3};

PyStructSequence_Field result_fields[] = {
    {"matched_tokens", nullptr},        {"matched_below_tokens", nullptr},
    {"token_count", nullptr},           {"computed_tokens", nullptr},
    {"reserved_tokens", nullptr},       {"losses", nullptr},
    {"ready_ticket", nullptr},          {"tables", "A tuple of BlockTables."},
    {"added", "The same as `tables`."}, {nullptr, nullptr}};
PyStructSequence_Desc result_type = {
    "pagoda._native.SequenceResult",
    "The result of an operation on one sequence. A field that the operation's result does not have "
    "is 0.",
    result_fields, 9};

PyStructSequence_Field answer_fields[] = {{"results", "A tuple of SequenceResults."},
                                          {"revision", nullptr},
                                          {"completed_ticket", nullptr},
                                          {"completed_fetch_ticket", nullptr},
                                          {"completed_backup_ticket", nullptr},
                                          {nullptr, nullptr}};
PyStructSequence_Desc answer_type = {
    "pagoda._native.Answer", "A v1.BatchResult without errors and without shortened sequences.",
    answer_fields, 5};

struct Types {
  PyTypeObject* table = nullptr;
  PyTypeObject* result = nullptr;
  PyTypeObject* answer = nullptr;
};
// The module is loaded once in a process: see module.cc.
Types types;

// Takes the references to `fields`. nullptr with an exception if one of them is nullptr.
Object Make(PyTypeObject* type, std::initializer_list<PyObject*> fields) {
  Object made(PyStructSequence_New(type));
  bool complete = made != nullptr;
  Py_ssize_t place = 0;
  for (PyObject* field : fields) {
    complete = complete && field != nullptr;
    if (made != nullptr) {
      PyStructSequence_SetItem(made.get(), place++, field);
    } else {
      Py_XDECREF(field);
    }
  }
  return complete ? std::move(made) : nullptr;
}

// A tuple of what `make` returns for each element.
template <class Element, class Maker>
PyObject* Tuple(const std::vector<Element>& elements, const Maker& make) {
  Object tuple(PyTuple_New(static_cast<Py_ssize_t>(elements.size())));
  if (tuple == nullptr) return nullptr;
  for (size_t i = 0; i < elements.size(); ++i) {
    Object made = make(elements[i]);
    if (made == nullptr) return nullptr;
    PyTuple_SetItem(tuple.get(), static_cast<Py_ssize_t>(i), made.release());
  }
  return tuple.release();
}

Object MakeTable(const BlockTable& table) {
  static_assert(sizeof(BlockHandle) == 3 * sizeof(uint32_t));
  return Make(
      types.table,
      {PyLong_FromUnsignedLong(table.window_size), PyLong_FromUnsignedLong(table.first_block),
       PyBytes_FromStringAndSize(
           reinterpret_cast<const char*>(table.blocks.data()),
           static_cast<Py_ssize_t>(table.blocks.size() * sizeof(BlockHandle)))});
}

Object MakeResult(const SequenceResult& result) {
  Object tables(Tuple(result.tables, MakeTable));
  if (tables == nullptr) return nullptr;
  Py_INCREF(tables.get());
  PyObject* again = tables.get();
  return Make(
      types.result,
      {PyLong_FromUnsignedLong(result.matched_tokens),
       PyLong_FromUnsignedLong(result.matched_below_tokens),
       PyLong_FromUnsignedLong(result.token_count), PyLong_FromUnsignedLong(result.computed_tokens),
       PyLong_FromUnsignedLong(result.reserved_tokens), PyLong_FromUnsignedLong(result.losses),
       PyLong_FromUnsignedLongLong(result.ready_ticket), tables.release(), again});
}

PyObject* MakeAnswer(const Answer& answer) {
  return Make(types.answer,
              {Tuple(answer.results, MakeResult), PyLong_FromUnsignedLongLong(answer.revision),
               PyLong_FromUnsignedLongLong(answer.completed_ticket),
               PyLong_FromUnsignedLongLong(answer.completed_fetch_ticket),
               PyLong_FromUnsignedLongLong(answer.completed_backup_ticket)})
      .release();
}

PyObject* ReadAnswerBytes(PyObject* /*module*/, PyObject* given) {
  char* data;
  Py_ssize_t size;
  if (PyBytes_AsStringAndSize(given, &data, &size) != 0) return nullptr;
  return Guarded([&]() -> PyObject* {
    Answer answer;
    if (ReadAnswer(std::string_view(data, static_cast<size_t>(size)), &answer)) {
      return MakeAnswer(answer);
    }
    Py_INCREF(Py_None);
    return Py_None;
  });
}

PyMethodDef functions[] = {{"read_answer", ReadAnswerBytes, METH_O,
                            "read_answer(bytes): the Answer in a serialized ExecuteResponse or "
                            "SessionResponse. None if it "
                            "has anything that an Answer has no place for."},
                           {nullptr, nullptr, 0, nullptr}};

bool AddType(PyObject* module, const char* name, PyStructSequence_Desc* described,
             PyTypeObject** type) {
  *type = PyStructSequence_NewType(described);
  return *type != nullptr &&
         PyModule_AddObjectRef(module, name, reinterpret_cast<PyObject*>(*type)) == 0;
}

}  // namespace

bool AddAnswers(PyObject* module) {
  return AddType(module, "BlockTable", &table_type, &types.table) &&
         AddType(module, "SequenceResult", &result_type, &types.result) &&
         AddType(module, "Answer", &answer_type, &types.answer) &&
         PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace pagoda::python

// Settings, planted failures, devices and contexts.
#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <sstream>
#include <vector>

#include "tests/pools/fake_cuda/state.h"

struct CUctx_st {
  int device = 0;
  int retained = 0;
};

namespace fake_cuda {
namespace {

constexpr int kMaxDevices = 8;

struct Control {
  std::mutex mutex;
  std::condition_variable held_changed;
  Settings settings;
  bool initialised = false;
  bool held = false;
  CUresult lost = CUDA_SUCCESS;
  std::mt19937 random;
  struct Plant {
    int nth = 0;  // Calls until one fails; 0: every call fails.
    CUresult code = CUDA_SUCCESS;
  };
  std::map<std::string, Plant> plants;
  std::map<std::string, uint64_t> calls;
  Plant copy;
  CUctx_st contexts[kMaxDevices];
};

uint64_t Variable(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

Settings FromEnvironment() {
  Settings settings;
  settings.devices = static_cast<int>(Variable("FAKE_CUDA_DEVICES", 1));
  settings.first_device = static_cast<int>(Variable("FAKE_CUDA_FIRST_DEVICE", 0));
  settings.memory_bytes = Variable("FAKE_CUDA_MEMORY_MIB", 256) << 20;
  settings.pinned_bytes = Variable("FAKE_CUDA_PINNED_MIB", 1024) << 20;
  settings.delay_us = static_cast<unsigned>(Variable("FAKE_CUDA_DELAY_US", 0));
  return settings;
}

Control& TheControl() {
  static Control* const control = [] {
    auto* made = new Control;
    made->settings = FromEnvironment();
    if (const char* plant = std::getenv("FAKE_CUDA_FAIL"); plant != nullptr) {
      std::istringstream text(plant);
      std::string call, nth, code;
      std::getline(text, call, ':');
      std::getline(text, nth, ':');
      std::getline(text, code, ':');
      made->plants[call] = {std::atoi(nth.c_str()), static_cast<CUresult>(std::atoi(code.c_str()))};
    }
    return made;
  }();
  return *control;
}

thread_local std::vector<CUcontext> current;

// REQUIRES: the control's mutex.
CUresult Planted(Control& control, const char* call) {
  ++control.calls[call];
  const auto it = control.plants.find(call);
  if (it == control.plants.end()) return CUDA_SUCCESS;
  if (it->second.nth == 0) return it->second.code;
  if (--it->second.nth > 0) return CUDA_SUCCESS;
  const CUresult code = it->second.code;
  control.plants.erase(it);
  return code;
}

}  // namespace

Settings GetSettings() {
  Control& control = TheControl();
  const std::lock_guard lock(control.mutex);
  return control.settings;
}

void ChangeSettings(const std::function<void(Settings&)>& change) {
  Control& control = TheControl();
  const std::lock_guard lock(control.mutex);
  change(control.settings);
}

CUresult Enter(const char* call) {
  Control& control = TheControl();
  const std::lock_guard lock(control.mutex);
  if (!control.initialised && std::strcmp(call, "cuInit") != 0) return CUDA_ERROR_NOT_INITIALIZED;
  return Planted(control, call);
}

CUresult EnterContext(const char* call) {
  if (current.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (current.back()->retained == 0) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (const CUresult planted = Enter(call); planted != CUDA_SUCCESS) return planted;
  return Lost();
}

void Lose(CUresult error) {
  Control& control = TheControl();
  const std::lock_guard lock(control.mutex);
  control.lost = error;
}

CUresult Lost() {
  Control& control = TheControl();
  const std::lock_guard lock(control.mutex);
  return control.lost;
}

unsigned NextDelay() {
  Control& control = TheControl();
  const std::lock_guard lock(control.mutex);
  return control.settings.delay_us == 0 ? 0 : control.random() % control.settings.delay_us;
}

CUresult NextCopyFails() {
  Control& control = TheControl();
  const std::lock_guard lock(control.mutex);
  if (control.copy.nth == 0 || --control.copy.nth > 0) return CUDA_SUCCESS;
  return control.copy.code;
}

void WaitWhileHeld() {
  Control& control = TheControl();
  std::unique_lock lock(control.mutex);
  control.held_changed.wait(lock, [&] { return !control.held; });
}

uint64_t Contexts() {
  Control& control = TheControl();
  const std::lock_guard lock(control.mutex);
  uint64_t held = 0;
  for (const CUctx_st& context : control.contexts) held += static_cast<uint64_t>(context.retained);
  return held;
}

}  // namespace fake_cuda

using fake_cuda::TheControl;

extern "C" {

FakeCudaUse fakeCudaUse() {
  FakeCudaUse use = {};
  fake_cuda::FillUse(use);
  fake_cuda::FillStreamUse(use);
  use.contexts = fake_cuda::Contexts();
  return use;
}

uint64_t fakeCudaCalls(const char* call) {
  const std::lock_guard lock(TheControl().mutex);
  return TheControl().calls[call];
}

void fakeCudaReset() {
  fakeCudaHold(0);
  const std::lock_guard lock(TheControl().mutex);
  TheControl().settings = fake_cuda::FromEnvironment();
  TheControl().plants.clear();
  TheControl().copy = {};
  TheControl().lost = CUDA_SUCCESS;
}

void fakeCudaFail(const char* call, int nth, int code) {
  const std::lock_guard lock(TheControl().mutex);
  TheControl().plants[call] = {nth, static_cast<CUresult>(code)};
}

void fakeCudaLoseDevice(int nth, int code) {
  const std::lock_guard lock(TheControl().mutex);
  TheControl().copy = {nth, static_cast<CUresult>(code)};
}

void fakeCudaDelay(unsigned max_microseconds, unsigned seed) {
  const std::lock_guard lock(TheControl().mutex);
  TheControl().settings.delay_us = max_microseconds;
  TheControl().random.seed(seed);
}

void fakeCudaHold(int held) {
  const std::lock_guard lock(TheControl().mutex);
  TheControl().held = held != 0;
  TheControl().held_changed.notify_all();
}

void fakeCudaLimits(uint64_t memory_bytes, uint64_t pinned_bytes) {
  fake_cuda::ChangeSettings([&](fake_cuda::Settings& settings) {
    settings.memory_bytes = memory_bytes;
    settings.pinned_bytes = pinned_bytes;
  });
}

void fakeCudaSameAddresses(int same) {
  fake_cuda::ChangeSettings([&](auto& settings) { settings.same_addresses = same != 0; });
}

void fakeCudaRefuseRowsWithin(int refuse) {
  fake_cuda::ChangeSettings([&](auto& settings) { settings.refuse_rows_within = refuse != 0; });
}

CUresult cuGetErrorName(CUresult error, const char** name) {
  static const std::map<CUresult, const char*> names = {
      {CUDA_SUCCESS, "CUDA_SUCCESS"},
      {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
      {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
      {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
      {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
      {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
      {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
      {CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
      {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
      {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"},
      {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
      {CUDA_ERROR_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM"},
      {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
      {CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"}};
  const auto it = names.find(error);
  *name = it == names.end() ? nullptr : it->second;
  return it == names.end() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuInit(unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  FAKE_CUDA_ENTER("cuInit");
  const std::lock_guard lock(TheControl().mutex);
  if (TheControl().settings.devices == 0) return CUDA_ERROR_NO_DEVICE;
  TheControl().initialised = true;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  FAKE_CUDA_ENTER("cuDeviceGetCount");
  *count = fake_cuda::GetSettings().devices;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  FAKE_CUDA_ENTER("cuDeviceGet");
  if (ordinal < 0 ||
      ordinal >= std::min(fake_cuda::GetSettings().devices, fake_cuda::kMaxDevices)) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  FAKE_CUDA_ENTER("cuDeviceGetName");
  std::strncpy(name, "Fake device", static_cast<size_t>(length));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  FAKE_CUDA_ENTER("cuDeviceGetUuid");
  std::memset(uuid->bytes, 'F', sizeof(uuid->bytes));
  uuid->bytes[0] = static_cast<char>(fake_cuda::GetSettings().first_device + device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  FAKE_CUDA_ENTER("cuDeviceGetAttribute");
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      *value = 1;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
      *value = fake_cuda::GetSettings().same_addresses ? 1 : 0;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  FAKE_CUDA_ENTER("cuDevicePrimaryCtxRetain");
  const std::lock_guard lock(TheControl().mutex);
  CUctx_st& held = TheControl().contexts[device];
  held.device = device;
  ++held.retained;
  *context = &held;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  FAKE_CUDA_ENTER("cuDevicePrimaryCtxRelease");
  const std::lock_guard lock(TheControl().mutex);
  CUctx_st& held = TheControl().contexts[device];
  if (held.retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  --held.retained;
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) {
  FAKE_CUDA_ENTER("cuCtxPushCurrent");
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  fake_cuda::current.push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  FAKE_CUDA_ENTER("cuCtxPopCurrent");
  if (fake_cuda::current.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = fake_cuda::current.back();
  fake_cuda::current.pop_back();
  return CUDA_SUCCESS;
}

}  // extern "C"

#include "probes/cupti/cupti_probe.h"

#include <cupti.h>
#include <dlfcn.h>

namespace ringscope {
namespace {

// The soname carries CUDA's major version since CUDA 12; the plain name comes with a development toolkit only.
void* open_library(const std::string& asked) {
  if (!asked.empty()) return dlopen(asked.c_str(), RTLD_NOW | RTLD_LOCAL);
  const std::string major = std::to_string(CUPTI_API_VERSION / 10000);
  for (const std::string& name : {"libcupti.so." + major, std::string("libcupti.so")}) {
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

template <class Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

void ignore_callback(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

std::string explain(int code) {
  std::string text = "cuptiSubscribe answered " + std::to_string(code);
  if (code == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) return text + ": another profiler is attached";
  if (code == CUPTI_ERROR_UNKNOWN) return text + ": most likely no NVIDIA driver";
  return text;
}

}  // namespace

CuptiStatus cupti_status(const std::string& library_name) {
  CuptiStatus status;
  status.built_for = CUPTI_API_VERSION;
  void* library = open_library(library_name);
  if (library == nullptr) {
    status.why = "libcupti cannot be loaded";
    return status;
  }
  // Never dlclose: CUPTI leaves threads and exit handlers behind once it was used.
  auto* get_version = find<decltype(cuptiGetVersion)>(library, "cuptiGetVersion");
  auto* subscribe = find<decltype(cuptiSubscribe)>(library, "cuptiSubscribe");
  auto* unsubscribe = find<decltype(cuptiUnsubscribe)>(library, "cuptiUnsubscribe");
  if (get_version == nullptr || subscribe == nullptr || unsubscribe == nullptr) {
    status.why = "the library lacks cuptiGetVersion, cuptiSubscribe or cuptiUnsubscribe";
    return status;
  }
  if (const CUptiResult code = get_version(&status.version); code != CUPTI_SUCCESS) {
    status.version = 0;
    status.why = "cuptiGetVersion answered " + std::to_string(int(code));
    return status;
  }
  CUpti_SubscriberHandle subscriber = nullptr;
  status.subscribe_code = int(subscribe(&subscriber, ignore_callback, nullptr));
  if (status.subscribe_code != CUPTI_SUCCESS) {
    status.why = explain(status.subscribe_code);
    return status;
  }
  unsubscribe(subscriber);
  status.usable = true;
  return status;
}

}  // namespace ringscope

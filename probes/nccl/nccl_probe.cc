#include "probes/nccl/nccl_probe.h"

#include <dlfcn.h>
#include <nccl.h>

namespace ringscope {

NcclStatus nccl_status(const std::string& library_name) {
  NcclStatus status;
  status.built_for = NCCL_VERSION_CODE;
  void* library = nullptr;
  if (!library_name.empty()) {
    library = dlopen(library_name.c_str(), RTLD_NOW | RTLD_LOCAL);
  } else {
    library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) library = dlopen("libnccl.so", RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    status.why = "libnccl cannot be loaded";
    return status;
  }
  // Never dlclose: NCCL leaves threads behind once it was used.
  auto* get_version = reinterpret_cast<decltype(ncclGetVersion)*>(dlsym(library, "ncclGetVersion"));
  if (get_version == nullptr) {
    status.why = "the library lacks ncclGetVersion";
    return status;
  }
  if (const ncclResult_t code = get_version(&status.version); code != ncclSuccess) {
    status.version = 0;
    status.why = "ncclGetVersion answered " + std::to_string(int(code));
  }
  return status;
}

}  // namespace ringscope

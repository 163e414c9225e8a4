# NCCL_FOUND, NCCL_VERSION, NCCL_INCLUDE_DIR, NCCL_LIBRARY; targets NCCL::headers and, where the library is,
# NCCL::NCCL. NCCL may lie inside the toolkit, in NCCL_ROOT / NCCL_HOME, or in the system's own folders.
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${NCCL_ROOT} ENV NCCL_HOME ENV NCCL_ROOT ${RINGSCOPE_CUDA_ROOTS}
          PATH_SUFFIXES ${RINGSCOPE_CUDA_INCLUDE_SUFFIXES})
find_library(NCCL_LIBRARY nccl HINTS ${NCCL_ROOT} ENV NCCL_HOME ENV NCCL_ROOT ${RINGSCOPE_CUDA_ROOTS}
             PATH_SUFFIXES ${RINGSCOPE_CUDA_LIB_SUFFIXES})
# nccl.h includes cuda_runtime.h, which lies elsewhere when NCCL is outside the toolkit.
find_path(NCCL_CUDA_INCLUDE_DIR cuda_runtime.h HINTS ${RINGSCOPE_CUDA_ROOTS}
          PATH_SUFFIXES ${RINGSCOPE_CUDA_INCLUDE_SUFFIXES})
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY NCCL_CUDA_INCLUDE_DIR)

if(NCCL_INCLUDE_DIR)
  set(NCCL_VERSION "")
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h line REGEX "^#define NCCL_${part}[ \t]+[0-9]+")
    string(REGEX REPLACE "^#define NCCL_${part}[ \t]+([0-9]+).*" "\\1" number "${line}")
    list(APPEND NCCL_VERSION ${number})
  endforeach()
  list(JOIN NCCL_VERSION "." NCCL_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_INCLUDE_DIR NCCL_CUDA_INCLUDE_DIR VERSION_VAR NCCL_VERSION)
if(NCCL_FOUND)
  ringscope_import(NCCL "${NCCL_LIBRARY}" ${NCCL_INCLUDE_DIR} ${NCCL_CUDA_INCLUDE_DIR})
endif()

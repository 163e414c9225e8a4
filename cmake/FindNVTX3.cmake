# NVTX3_FOUND, NVTX3_VERSION (of the payload extension), NVTX3_INCLUDE_DIR; target NVTX3::headers. NVTX is headers
# only. The payload extension is required: without it a range carries no place.
find_path(NVTX3_INCLUDE_DIR nvtx3/nvToolsExtPayload.h HINTS ${NVTX3_ROOT} ${RINGSCOPE_CUDA_ROOTS}
          PATH_SUFFIXES ${RINGSCOPE_CUDA_INCLUDE_SUFFIXES})
mark_as_advanced(NVTX3_INCLUDE_DIR)
if(NVTX3_INCLUDE_DIR)
  file(STRINGS ${NVTX3_INCLUDE_DIR}/nvtx3/nvToolsExtPayload.h line REGEX "^#define NVTX_EXT_PAYLOAD_COMPATID")
  string(REGEX REPLACE ".*(0x[0-9A-Fa-f]+).*" "\\1" NVTX3_VERSION "${line}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NVTX3 REQUIRED_VARS NVTX3_INCLUDE_DIR)
if(NVTX3_FOUND AND NOT TARGET NVTX3::headers)
  add_library(NVTX3::headers INTERFACE IMPORTED)
  target_include_directories(NVTX3::headers SYSTEM INTERFACE ${NVTX3_INCLUDE_DIR})
endif()

# CUPTI_FOUND, CUPTI_VERSION, CUPTI_INCLUDE_DIR, CUPTI_LIBRARY (may be absent: the probe loads it at run time);
# targets CUPTI::headers and, where the library is, CUPTI::CUPTI.
find_path(CUPTI_INCLUDE_DIR cupti.h HINTS ${RINGSCOPE_CUDA_ROOTS} PATH_SUFFIXES ${RINGSCOPE_CUDA_INCLUDE_SUFFIXES})
find_library(CUPTI_LIBRARY cupti HINTS ${RINGSCOPE_CUDA_ROOTS} PATH_SUFFIXES ${RINGSCOPE_CUDA_LIB_SUFFIXES})
# cupti.h includes cuda.h, which with extras/CUPTI lies in another folder.
find_path(CUPTI_CUDA_INCLUDE_DIR cuda.h HINTS ${RINGSCOPE_CUDA_ROOTS} PATH_SUFFIXES ${RINGSCOPE_CUDA_INCLUDE_SUFFIXES})
mark_as_advanced(CUPTI_INCLUDE_DIR CUPTI_LIBRARY CUPTI_CUDA_INCLUDE_DIR)

if(CUPTI_INCLUDE_DIR AND EXISTS ${CUPTI_INCLUDE_DIR}/cupti_version.h)
  file(STRINGS ${CUPTI_INCLUDE_DIR}/cupti_version.h line REGEX "^#define CUPTI_API_VERSION[ \t]+[0-9]+")
  string(REGEX REPLACE "^#define CUPTI_API_VERSION[ \t]+([0-9]+).*" "\\1" CUPTI_VERSION "${line}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUPTI REQUIRED_VARS CUPTI_INCLUDE_DIR CUPTI_CUDA_INCLUDE_DIR
                                  VERSION_VAR CUPTI_VERSION)
if(CUPTI_FOUND)
  ringscope_import(CUPTI "${CUPTI_LIBRARY}" ${CUPTI_INCLUDE_DIR} ${CUPTI_CUDA_INCLUDE_DIR})
endif()

# What of NVIDIA's stack is here, and the CUDA language where it is asked for.
#
# Two levels. The probes (NVTX, CUPTI, NCCL) need headers only, compile with g++ and are built in every preset
# in which the headers are found; without them one other source file gives the same interface and says "absent".
# Kernels need nvcc: only RINGSCOPE_CUDA=ON enables the language, and then a missing part is an error.
include_guard(GLOBAL)

# Where a toolkit may lie: said by the user, beside nvcc, in the usual place, in Debian's packages. A toolkit put
# together from wheels has lib/ where an installer has lib64/ or targets/<arch>/lib, and CUPTI in extras/CUPTI.
find_program(RINGSCOPE_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
set(RINGSCOPE_CUDA_ROOTS ${CUDAToolkit_ROOT} $ENV{CUDA_HOME} $ENV{CUDA_PATH})
if(RINGSCOPE_NVCC)
  file(REAL_PATH ${RINGSCOPE_NVCC} nvcc_path)
  cmake_path(GET nvcc_path PARENT_PATH nvcc_bin)
  cmake_path(GET nvcc_bin PARENT_PATH nvcc_root)
  list(APPEND RINGSCOPE_CUDA_ROOTS ${nvcc_root})
endif()
list(APPEND RINGSCOPE_CUDA_ROOTS /usr/local/cuda /opt/cuda /usr/lib/cuda /usr)
set(RINGSCOPE_CUDA_INCLUDE_SUFFIXES include targets/x86_64-linux/include extras/CUPTI/include)
set(RINGSCOPE_CUDA_LIB_SUFFIXES lib64 lib targets/x86_64-linux/lib extras/CUPTI/lib64 lib/x86_64-linux-gnu)

# For the Find modules: NAME::headers, and NAME::NAME where the library is (the probes load it at run time).
function(ringscope_import name library)
  if(TARGET ${name}::headers)
    return()
  endif()
  add_library(${name}::headers INTERFACE IMPORTED)
  target_include_directories(${name}::headers SYSTEM INTERFACE ${ARGN})
  if(library)
    add_library(${name}::${name} SHARED IMPORTED)
    set_target_properties(${name}::${name} PROPERTIES IMPORTED_LOCATION ${library})
    target_link_libraries(${name}::${name} INTERFACE ${name}::headers)
  endif()
endfunction()

if(RINGSCOPE_CUDA)
  if(NOT RINGSCOPE_NVCC)
    message(FATAL_ERROR "RINGSCOPE_CUDA=ON, but there is no nvcc in PATH, $CUDA_HOME/bin or /usr/local/cuda/bin")
  endif()
  set(CMAKE_CUDA_COMPILER ${RINGSCOPE_NVCC} CACHE FILEPATH "")
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80 90)  # A100 and H100/H200; newer devices run the PTX of 90
  endif()
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 17)  # CMake 3.25 does not know nvcc's C++20; device code needs none of it
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  find_package(CUDAToolkit REQUIRED)
  find_package(CUPTI REQUIRED)
  find_package(NCCL REQUIRED)
  find_package(NVTX3 REQUIRED)
else()
  find_package(CUPTI QUIET)
  find_package(NCCL QUIET)
  find_package(NVTX3 QUIET)
endif()

foreach(part NVTX3 CUPTI NCCL)
  if(${part}_FOUND)
    message(STATUS "${part}: ${${part}_INCLUDE_DIR} (version ${${part}_VERSION})")
  else()
    message(STATUS "${part}: headers not found, its probe is built as absent")
  endif()
endforeach()

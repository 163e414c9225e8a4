# Shared build rules. Folder CMakeLists use these functions only:
#   ringscope_library(<folder_name> SOURCES a.cc ... [PUBLIC dep ...] [PRIVATE dep ...])
#   ringscope_test(<name> SOURCES a_test.cc ... DEPS lib ... [LABELS l ...])
#   ringscope_bench(<name> SOURCES a_bench.cc ... DEPS lib ...)
# Labels that build something of their own: "tsan" puts a test into the reduced ThreadSanitizer suite (target
# tsan_tests), "cuda" into the CUDA-only one (cuda_tests). ringscope_aggregates() makes those targets at the end.
include_guard(GLOBAL)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

option(RINGSCOPE_TESTS "Build the tests and benchmarks" ON)
set(RINGSCOPE_SANITIZE "" CACHE STRING "Sanitizers for -fsanitize= (address,undefined or thread)")
option(RINGSCOPE_CUDA "Build the CUDA targets; fails if the toolkit is missing" OFF)
option(RINGSCOPE_WERROR "Warnings are errors (the ci preset)" OFF)

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()

# Here and not in the folders: an imported target is seen only below the folder that found it, and tests use
# the same libraries.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)

add_library(ringscope_options INTERFACE)
target_include_directories(ringscope_options INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
target_compile_options(ringscope_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wno-missing-field-initializers>)
if(RINGSCOPE_WERROR)
  target_compile_options(ringscope_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(RINGSCOPE_SANITIZE)
  if(RINGSCOPE_SANITIZE MATCHES "undefined")
    # Otherwise undefined behaviour is only printed and the test passes.
    target_compile_options(ringscope_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=undefined>)
  endif()
  target_compile_options(ringscope_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${RINGSCOPE_SANITIZE} -fno-omit-frame-pointer>)
  target_link_options(ringscope_options INTERFACE -fsanitize=${RINGSCOPE_SANITIZE})
endif()
target_link_libraries(ringscope_options INTERFACE Threads::Threads)

function(ringscope_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  add_library(ringscope::${name} ALIAS ${name})
  target_link_libraries(${name} PUBLIC ringscope_options ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
endfunction()

if(RINGSCOPE_TESTS)
  enable_testing()
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()

# A test binary groups the *_test.cc of one folder: a GoogleTest file costs seconds to compile.
function(ringscope_test name)
  if(NOT RINGSCOPE_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ringscope_options ${ARG_DEPS} GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE RINGSCOPE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  # One ctest entry a binary: starting a process per case costs more than the cases.
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
  foreach(label ${ARG_LABELS})
    set_property(GLOBAL APPEND PROPERTY RINGSCOPE_TESTS_${label} ${name})
  endforeach()
endfunction()

function(ringscope_bench name)
  if(NOT RINGSCOPE_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} EXCLUDE_FROM_ALL ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ringscope_options ${ARG_DEPS})
  set_property(GLOBAL APPEND PROPERTY RINGSCOPE_BENCHES ${name})
endfunction()

# benches, tsan_tests and cuda_tests: what ./dev bench and the tsan and cuda presets build. benches.txt lists the
# programs that ./dev bench runs.
function(ringscope_aggregates)
  if(NOT RINGSCOPE_TESTS)
    return()
  endif()
  foreach(label tsan cuda)
    get_property(members GLOBAL PROPERTY RINGSCOPE_TESTS_${label})
    add_custom_target(${label}_tests DEPENDS ${members})
  endforeach()
  get_property(benches GLOBAL PROPERTY RINGSCOPE_BENCHES)
  add_custom_target(benches DEPENDS ${benches})
  set(programs "")
  foreach(bench ${benches})
    string(APPEND programs "$<TARGET_FILE:${bench}>\n")
  endforeach()
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/benches.txt CONTENT "${programs}")
endfunction()

# The default architectures of the CUDA module: each is known to the oldest toolkit that gets it, and
# the newest one includes PTX. With NVCC set, that compiler must know all of its own default.
#
# Usage: cmake [-DNVCC=FILE] -P check_cuda_architectures.cmake
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/../cmake/CudaArchitectures.cmake")

# What `nvcc --list-gpu-arch` prints from these versions on.
set(known_12.4 80 90)
set(known_12.8 80 90 100)

function(check version known)
  ccs_cuda_architectures(list ${version})
  foreach(entry IN LISTS list)
    string(REGEX MATCH "^[0-9]+" number "${entry}")
    if(NOT number IN_LIST known)
      message(SEND_ERROR "CUDA ${version} does not know architecture ${entry} of its default '${list}'")
    endif()
  endforeach()
  list(GET known -1 newest)
  if(NOT list MATCHES "${newest}(-virtual)?$")
    message(SEND_ERROR "CUDA ${version}: '${list}' has no PTX of architecture ${newest}")
  endif()
  if(NOT list MATCHES "80-real")
    message(SEND_ERROR "CUDA ${version}: '${list}' has no code for the oldest GPU, 80")
  endif()
endfunction()

foreach(version IN ITEMS 12.4 12.4.131 12.6.3 12.7 12.7.99)
  check(${version} "${known_12.4}")
endforeach()
foreach(version IN ITEMS 12.8 12.8.61 12.10 13.0.88)
  check(${version} "${known_12.8}")
endforeach()

if(NVCC)
  execute_process(COMMAND "${NVCC}" --version OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCH "release ([0-9.]+)" text "${text}")
  set(version "${CMAKE_MATCH_1}")
  execute_process(COMMAND "${NVCC}" --list-gpu-arch OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  ccs_cuda_architectures(list ${version})
  foreach(entry IN LISTS list)
    string(REGEX MATCH "^[0-9]+" number "${entry}")
    if(NOT text MATCHES "compute_${number}\n")
      message(SEND_ERROR "${NVCC} of CUDA ${version} does not know architecture ${entry}")
    endif()
  endforeach()
endif()

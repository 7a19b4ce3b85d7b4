# FindcuDNN: the cuDNN header and its shim library, wherever one of the usual layouts put them.
#
# Looked at, in this order: CUDNN_ROOT (variable or environment), the CUDA toolkit, the system
# (NVIDIA's apt packages), and each <site-packages>/nvidia/cudnn of pip wheels named by CUDNN_ROOT.
# Wheels carry versioned libraries only, so libcudnn.so.9 is as good as libcudnn.so.
#
# Gives the target cuDNN::cudnn, and cuDNN_VERSION, cuDNN_INCLUDE_DIR, cuDNN_LIBRARY; where the two
# do not belong together, cuDNN_MISMATCH says so.
set(_cudnn_roots ${CUDNN_ROOT} $ENV{CUDNN_ROOT})
list(TRANSFORM _cudnn_roots APPEND "/nvidia/cudnn" OUTPUT_VARIABLE _cudnn_wheels)

find_path(cuDNN_INCLUDE_DIR NAMES cudnn_version.h
  HINTS ${_cudnn_roots} ${_cudnn_wheels} ${CUDAToolkit_INCLUDE_DIRS} ${CUDAToolkit_LIBRARY_ROOT}
  PATH_SUFFIXES include)
# Of one folder both names before the next folder: header and library shall be neighbours.
find_library(cuDNN_LIBRARY NAMES cudnn libcudnn.so.9 NAMES_PER_DIR
  HINTS ${_cudnn_roots} ${_cudnn_wheels} ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}
  PATH_SUFFIXES lib lib64 lib/x64)

if(cuDNN_INCLUDE_DIR)
  file(STRINGS "${cuDNN_INCLUDE_DIR}/cudnn_version.h" _cudnn_lines
    REGEX "^#define CUDNN_(MAJOR|MINOR|PATCHLEVEL) +[0-9]+")
  set(_cudnn_parts "")
  foreach(_part MAJOR MINOR PATCHLEVEL)
    if("${_cudnn_lines}" MATCHES "CUDNN_${_part} +([0-9]+)")
      list(APPEND _cudnn_parts "${CMAKE_MATCH_1}")
    endif()
  endforeach()
  list(JOIN _cudnn_parts "." cuDNN_VERSION)
endif()

# The header and the library must be of one major version, which the library's real name says.
set(cuDNN_MISMATCH "")
if(cuDNN_LIBRARY AND cuDNN_VERSION)
  file(REAL_PATH "${cuDNN_LIBRARY}" _cudnn_file)
  if(_cudnn_file MATCHES "\\.so\\.([0-9]+)")
    if(NOT cuDNN_VERSION MATCHES "^${CMAKE_MATCH_1}\\.")
      set(cuDNN_MISMATCH
          "${_cudnn_file} is not of version ${cuDNN_VERSION}, which ${cuDNN_INCLUDE_DIR} is for")
      unset(cuDNN_LIBRARY CACHE)
    endif()
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(cuDNN
  REQUIRED_VARS cuDNN_LIBRARY cuDNN_INCLUDE_DIR
  VERSION_VAR cuDNN_VERSION
  REASON_FAILURE_MESSAGE "${cuDNN_MISMATCH} (CUDNN_ROOT names the folder that holds include/cudnn.h)")

if(cuDNN_FOUND AND NOT TARGET cuDNN::cudnn)
  add_library(cuDNN::cudnn UNKNOWN IMPORTED)
  set_target_properties(cuDNN::cudnn PROPERTIES
    IMPORTED_LOCATION "${cuDNN_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${cuDNN_INCLUDE_DIR}")
endif()
mark_as_advanced(cuDNN_INCLUDE_DIR cuDNN_LIBRARY)

# CUDA is optional. PAGODA_CUDA is AUTO (use the parts that are found), ON (require all of it) or
# OFF (use none).
#  * GPU memory (pools/cuda) needs only the toolkit's headers, and finds the driver at run time.
#  * nvcc also builds the kernels (kernels/cuda), with CUDA's runtime linked in. PAGODA_NVCC says
#    whether nvcc was found and works.
set(PAGODA_CUDA AUTO CACHE STRING "CUDA, for GPU memory and kernels: AUTO, ON or OFF")
set_property(CACHE PAGODA_CUDA PROPERTY STRINGS AUTO ON OFF)
# sm_80 is the oldest architecture that the kernels support. Its code runs on 8.x, and the driver
# compiles its PTX for later architectures.
set(PAGODA_CUDA_ARCHITECTURES "80;90a-real" CACHE STRING "The architectures that nvcc compiles for")

if(PAGODA_CUDA STREQUAL "ON")
  find_package(CUDAToolkit 12 REQUIRED)
elseif(PAGODA_CUDA STREQUAL "AUTO")
  find_package(CUDAToolkit 12)
elseif(NOT PAGODA_CUDA STREQUAL "OFF")
  message(FATAL_ERROR "PAGODA_CUDA is '${PAGODA_CUDA}'; allowed: AUTO, ON, OFF")
endif()

set(PAGODA_NVCC FALSE)
if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE)
  # Checks that nvcc compiles. If it does not, for example because it refuses the host compiler,
  # enable_language alone would end the configuration. The check is a separate project and reads
  # these variables; its default architecture is one that CUDA 13 no longer has.
  include(CheckLanguage)
  set(ENV{CUDACXX} ${CUDAToolkit_NVCC_EXECUTABLE})
  set(ENV{CUDAARCHS} "${PAGODA_CUDA_ARCHITECTURES}")
  check_language(CUDA)
endif()
if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE AND CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_ARCHITECTURES ${PAGODA_CUDA_ARCHITECTURES})
  # No debug lines, which are large. By default nvcc optimises kernels as far as it can.
  set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O3")
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  if(CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${PAGODA_CCACHE})
  endif()
  enable_language(CUDA)
  # CMake 3.25 does not know that this nvcc supports C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA_STANDARD 20)
  set(PAGODA_NVCC TRUE)
elseif(PAGODA_CUDA STREQUAL "ON")
  message(FATAL_ERROR "PAGODA_CUDA is ON, but no working nvcc was found (CUDAToolkit has '${CUDAToolkit_NVCC_EXECUTABLE}')")
elseif(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE)
  message(STATUS "${CUDAToolkit_NVCC_EXECUTABLE} does not work here, so the GPU kernels are left out")
endif()

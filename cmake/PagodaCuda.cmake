# CUDA is optional. PAGODA_CUDA: AUTO takes what is found of it, ON wants all of it, OFF none.
#  * The toolkit's headers are enough for GPU memory (pools/cuda), which finds the driver when it runs.
#  * nvcc also builds the kernels (kernels/cuda), with CUDA's runtime linked in; PAGODA_NVCC says whether it was found.
set(PAGODA_CUDA AUTO CACHE STRING "CUDA, for GPU memory and kernels: AUTO, ON or OFF")
set_property(CACHE PAGODA_CUDA PROPERTY STRINGS AUTO ON OFF)
# sm_80 is the oldest that the kernels are for; its code runs on 8.x, and its PTX is compiled by the driver for what comes later.
set(PAGODA_CUDA_ARCHITECTURES "80;90a-real" CACHE STRING "What nvcc makes code for")

if(PAGODA_CUDA STREQUAL "ON")
  find_package(CUDAToolkit 12 REQUIRED)
elseif(PAGODA_CUDA STREQUAL "AUTO")
  find_package(CUDAToolkit 12)
elseif(NOT PAGODA_CUDA STREQUAL "OFF")
  message(FATAL_ERROR "PAGODA_CUDA is '${PAGODA_CUDA}'; allowed: AUTO, ON, OFF")
endif()

set(PAGODA_NVCC FALSE)
if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE)
  # Whether it compiles: enable_language alone is fatal where it does not, for example with a host compiler that it refuses. The check
  # is a project of its own, which reads these; its default is an architecture that CUDA 13 does not have any more.
  include(CheckLanguage)
  set(ENV{CUDACXX} ${CUDAToolkit_NVCC_EXECUTABLE})
  set(ENV{CUDAARCHS} "${PAGODA_CUDA_ARCHITECTURES}")
  check_language(CUDA)
endif()
if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE AND CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_ARCHITECTURES ${PAGODA_CUDA_ARCHITECTURES})
  # nvcc's own default is to optimise kernels as far as it can; debug lines are not worth their size.
  set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O3")
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  if(CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${PAGODA_CCACHE})
  endif()
  enable_language(CUDA)
  # CMake 3.25 does not know that this nvcc has C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA_STANDARD 20)
  set(PAGODA_NVCC TRUE)
elseif(PAGODA_CUDA STREQUAL "ON")
  message(FATAL_ERROR "PAGODA_CUDA is ON and there is no nvcc that works (CUDAToolkit's: '${CUDAToolkit_NVCC_EXECUTABLE}')")
elseif(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE)
  message(STATUS "${CUDAToolkit_NVCC_EXECUTABLE} does not work here: the kernels for GPUs are left out")
endif()

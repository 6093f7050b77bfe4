# The CUDA device: a library, and its kernels as a fat binary. Only where there is a toolkit; no GPU
# and no driver is needed to build it.
find_package(CUDAToolkit 12.8 QUIET)
if(NOT CUDAToolkit_FOUND)
  message(STATUS "CUDA toolkit 12.8 or newer not found: built without CUDA")
  segue_library(segue_cuda src/device/without_cuda segue_device)
  return()
endif()

# Machine code for Ampere, Hopper and Blackwell; the driver compiles the PTX for all others.
set(kernels_image ${PROJECT_BINARY_DIR}/kernels.fatbin)
file(GLOB kernel_headers CONFIGURE_DEPENDS src/device/cuda/*.h)
set(targets)
foreach(architecture 80 90 100 103)
  list(APPEND targets -gencode arch=compute_${architecture},code=sm_${architecture})
endforeach()
set(compile_kernels ${CUDAToolkit_NVCC_EXECUTABLE} -std=c++20 -O3 --expt-relaxed-constexpr
  -Werror all-warnings -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/include
  ${PROJECT_SOURCE_DIR}/src/device/cuda/kernels.cu)
set(kernel_sources src/device/cuda/kernels.cu ${kernel_headers} src/base/digest.h
  src/base/random.h)
add_custom_command(OUTPUT ${kernels_image}
  COMMAND ${compile_kernels} ${targets} -gencode arch=compute_80,code=compute_80 --threads 0
    -fatbin -o ${kernels_image}
  DEPENDS ${kernel_sources} VERBATIM)
add_custom_target(segue_kernels DEPENDS ${kernels_image})

segue_library(segue_cuda src/device/cuda segue_device ${CMAKE_DL_LIBS})
target_include_directories(segue_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
add_dependencies(segue_cuda segue_kernels)
set_source_files_properties(src/device/cuda/kernels_image.cc PROPERTIES
  COMPILE_DEFINITIONS SEGUE_KERNELS_IMAGE="${kernels_image}" OBJECT_DEPENDS ${kernels_image})

# The CUDA device: a library, its kernels as a fat binary, and its tests on a fake driver. Only where
# there is a toolkit; no GPU and no driver is needed to build or to test.
find_package(CUDAToolkit 12.8 QUIET)
if(NOT CUDAToolkit_FOUND)
  message(STATUS "CUDA toolkit 12.8 or newer not found: src/device/cuda is not built")
  return()
endif()

# Machine code for Ampere, Hopper and Blackwell; the driver compiles the PTX for all others.
set(kernels_image ${PROJECT_BINARY_DIR}/kernels.fatbin)
file(GLOB kernel_headers CONFIGURE_DEPENDS src/device/cuda/*.h)
set(targets)
foreach(architecture 80 90 100 103)
  list(APPEND targets -gencode arch=compute_${architecture},code=sm_${architecture})
endforeach()
add_custom_command(OUTPUT ${kernels_image}
  COMMAND ${CUDAToolkit_NVCC_EXECUTABLE} -std=c++20 -O3 --expt-relaxed-constexpr
    -Werror all-warnings -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/include ${targets}
    -gencode arch=compute_80,code=compute_80 --threads 0 -fatbin -o ${kernels_image}
    ${PROJECT_SOURCE_DIR}/src/device/cuda/kernels.cu
  DEPENDS src/device/cuda/kernels.cu ${kernel_headers} src/base/digest.h src/base/random.h
  VERBATIM)
add_custom_target(segue_kernels DEPENDS ${kernels_image})

segue_library(segue_cuda src/device/cuda segue_device ${CMAKE_DL_LIBS})
target_include_directories(segue_cuda SYSTEM PUBLIC ${CUDAToolkit_INCLUDE_DIRS})
add_dependencies(segue_cuda segue_kernels)
set_source_files_properties(src/device/cuda/kernels_image.cc PROPERTIES
  COMPILE_DEFINITIONS SEGUE_KERNELS_IMAGE="${kernels_image}" OBJECT_DEPENDS ${kernels_image})

add_library(segue_fake_cuda SHARED tests/fake_cuda/fake_cuda.cc)
set_target_properties(segue_fake_cuda PROPERTIES CXX_VISIBILITY_PRESET default)
target_include_directories(segue_fake_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_include_directories(segue_fake_cuda PRIVATE src include tests)

file(GLOB sources CONFIGURE_DEPENDS src/device/cuda/*_test.cc)
add_executable(cuda_test ${sources})
target_include_directories(cuda_test PRIVATE tests)
target_link_libraries(cuda_test PRIVATE segue_cuda GTest::gmock GTest::gtest_main)
add_dependencies(cuda_test segue_fake_cuda)
target_compile_definitions(cuda_test PRIVATE SEGUE_FAKE_CUDA="$<TARGET_FILE:segue_fake_cuda>")
gtest_discover_tests(cuda_test DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300)

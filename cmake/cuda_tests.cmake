# Tests of the CUDA device, on a fake driver: a shared library in place of the machine's.
# It can run the kernels as they were compiled: PTX of the two families of targets that the compiler
# makes different code for.
set(ptx)
foreach(architecture 80 100)
  set(file ${PROJECT_BINARY_DIR}/kernels_${architecture}.ptx)
  add_custom_command(OUTPUT ${file}
    COMMAND ${compile_kernels} -arch=compute_${architecture} -ptx -o ${file}
    DEPENDS ${kernel_sources} VERBATIM)
  list(APPEND ptx ${file})
endforeach()
add_custom_target(segue_kernels_ptx DEPENDS ${ptx})

file(GLOB sources CONFIGURE_DEPENDS tests/ptx/*.cc)
list(FILTER sources EXCLUDE REGEX "_test")
add_library(segue_run_kernel STATIC ${sources} tests/fake_cuda/run_kernel.cc)
target_include_directories(segue_run_kernel PRIVATE src include PUBLIC tests)
target_include_directories(segue_run_kernel SYSTEM PUBLIC ${CUDAToolkit_INCLUDE_DIRS})

file(GLOB sources CONFIGURE_DEPENDS tests/fake_cuda/*.cc)
list(FILTER sources EXCLUDE REGEX "run_kernel")
add_library(segue_fake_cuda SHARED ${sources})
add_dependencies(segue_fake_cuda segue_kernels_ptx)
target_link_libraries(segue_fake_cuda PRIVATE segue_run_kernel)
set_target_properties(segue_fake_cuda PROPERTIES CXX_VISIBILITY_PRESET default)
target_include_directories(segue_fake_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_include_directories(segue_fake_cuda PRIVATE src include tests)

# nvCOMP's place is taken by a library that works on the fake driver's device.
file(GLOB sources CONFIGURE_DEPENDS tests/fake_nvcomp/*.cc)
add_library(segue_fake_nvcomp SHARED ${sources})
set_target_properties(segue_fake_nvcomp PROPERTIES CXX_VISIBILITY_PRESET default)
target_include_directories(segue_fake_nvcomp SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_include_directories(segue_fake_nvcomp PRIVATE src include tests)
target_link_libraries(segue_fake_nvcomp PRIVATE segue_fake_cuda)

file(GLOB sources CONFIGURE_DEPENDS src/device/cuda/*_test.cc tests/cuda/*_test.cc
  tests/ptx/*_test.cc)
add_executable(cuda_test ${sources})
target_include_directories(cuda_test PRIVATE tests)
target_include_directories(cuda_test SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(cuda_test PRIVATE segue_live segue_run_kernel GTest::gmock GTest::gtest_main)
add_dependencies(cuda_test segue_fake_cuda segue_fake_nvcomp)
target_compile_definitions(cuda_test PRIVATE SEGUE_FAKE_CUDA="$<TARGET_FILE:segue_fake_cuda>"
  SEGUE_FAKE_NVCOMP="$<TARGET_FILE:segue_fake_nvcomp>"
  SEGUE_KERNELS_PTX="${PROJECT_BINARY_DIR}/kernels")
gtest_discover_tests(cuda_test DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300)
# All of it once more by the compiled kernels, one target in the order of the program, the other in a
# random order of lanes.
if(NOT SEGUE_SANITIZE)
  foreach(run 80:0 100:1)
    string(REGEX MATCH "^[0-9]+" architecture ${run})
    string(REGEX MATCH "[0-9]+$" seed ${run})
    add_test(NAME cuda_test_ptx_${architecture} COMMAND cuda_test --gtest_brief=1)
    set_tests_properties(cuda_test_ptx_${architecture} PROPERTIES TIMEOUT 900 ENVIRONMENT
      "SEGUE_FAKE_CUDA_PTX=${PROJECT_BINARY_DIR}/kernels_${architecture}.ptx;SEGUE_FAKE_CUDA_SEED=${seed}")
  endforeach()
endif()

# What tools/gpu_check runs, on a GPU or the fake driver.
file(GLOB sources CONFIGURE_DEPENDS bench/gpu/*.cc)
add_executable(segue_gpu_check ${sources})
target_include_directories(segue_gpu_check PRIVATE ${PROJECT_SOURCE_DIR})
target_include_directories(segue_gpu_check SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(segue_gpu_check PRIVATE segue_live segue_bench CLI11::CLI11
  nlohmann_json::nlohmann_json fmt::fmt ${CMAKE_DL_LIBS})

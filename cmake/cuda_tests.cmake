# Tests of the CUDA device, on a fake driver: a shared library in place of the machine's.
file(GLOB sources CONFIGURE_DEPENDS tests/fake_cuda/*.cc)
add_library(segue_fake_cuda SHARED ${sources})
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

file(GLOB sources CONFIGURE_DEPENDS src/device/cuda/*_test.cc tests/cuda/*_test.cc)
add_executable(cuda_test ${sources})
target_include_directories(cuda_test PRIVATE tests)
target_include_directories(cuda_test SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(cuda_test PRIVATE segue_live GTest::gmock GTest::gtest_main)
add_dependencies(cuda_test segue_fake_cuda segue_fake_nvcomp)
target_compile_definitions(cuda_test PRIVATE SEGUE_FAKE_CUDA="$<TARGET_FILE:segue_fake_cuda>"
  SEGUE_FAKE_NVCOMP="$<TARGET_FILE:segue_fake_nvcomp>")
gtest_discover_tests(cuda_test DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300)

# What tools/gpu_check runs, on a GPU or the fake driver.
file(GLOB sources CONFIGURE_DEPENDS bench/gpu/*.cc)
add_executable(segue_gpu_check ${sources})
target_include_directories(segue_gpu_check PRIVATE ${PROJECT_SOURCE_DIR})
target_include_directories(segue_gpu_check SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(segue_gpu_check PRIVATE segue_live segue_bench CLI11::CLI11
  nlohmann_json::nlohmann_json fmt::fmt ${CMAKE_DL_LIBS})

// SPDX-License-Identifier: Apache-2.0
//
// Create, reserve, map, allow; backwards at the end.
#include "device/cuda/engine_arena.h"

#include <string>

#include "base/bytes.h"

namespace segue::cuda {

Status CheckForEngine(const DriverPointer& driver, CUdeviceptr address, const char* what) {
  int is_capable = 0;
  const Status asked =
      driver->Check(driver->cuPointerGetAttribute(
                        &is_capable, CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, address),
                    "cuPointerGetAttribute");
  if (asked.ok() && is_capable != 0) return {};
  return Unsupported(std::string(what) + " that the engine cannot use" +
                     (asked.ok() ? "" : ": " + asked.message()));
}

EngineArena::Mapping::~Mapping() {
  if (is_mapped) driver->cuMemUnmap(address, size);
  if (address != 0) driver->cuMemAddressFree(address, size);
  if (has_handle) driver->cuMemRelease(handle);
}

Result<EngineArena> EngineArena::Make(const StagingMemory& memory, CUdevice device, int host_node,
                                      std::uint64_t size) {
  CUmemAllocationProp kind = {};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, host_node};
  kind.allocFlags.usage = CU_MEM_CREATE_USAGE_HW_DECOMPRESS;

  EngineArena arena;
  arena.mapping_ = std::make_unique<Mapping>();
  Mapping& mapping = *arena.mapping_;
  const DriverPointer& driver = mapping.driver = memory.driver();
  std::size_t granularity = 0;
  SEGUE_CUDA_TRY(driver, cuMemGetAllocationGranularity, &granularity, &kind,
                 CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (granularity == 0) return Internal("cuMemGetAllocationGranularity: 0");
  mapping.size = DivideUp(size, granularity) * granularity;
  SEGUE_ASSIGN_OR_RETURN(mapping.charge, memory.Charge(mapping.size, "host memory"));
  SEGUE_CUDA_TRY(driver, cuMemCreate, &mapping.handle, mapping.size, &kind, 0);
  mapping.charge = memory.Hold(mapping.size, std::move(mapping.charge));
  mapping.has_handle = true;
  SEGUE_CUDA_TRY(driver, cuMemAddressReserve, &mapping.address, mapping.size, 0, 0, 0);
  SEGUE_CUDA_TRY(driver, cuMemMap, mapping.address, mapping.size, 0, mapping.handle, 0);
  mapping.is_mapped = true;
  const CUmemAccessDesc access[] = {
      {{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
      {{CU_MEM_LOCATION_TYPE_HOST_NUMA, host_node}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
  SEGUE_CUDA_TRY(driver, cuMemSetAccess, mapping.address, mapping.size, access, std::size(access));
  SEGUE_RETURN_IF_ERROR(CheckForEngine(driver, mapping.address, "host memory"));
  return arena;
}

}  // namespace segue::cuda

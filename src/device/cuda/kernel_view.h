// SPDX-License-Identifier: Apache-2.0
//
// A ViewMap in the form that kernels follow.
#pragma once

#include "device/cuda/kernel_rows.h"
#include "device/view_map.h"

namespace segue::cuda {

inline KernelView MakeKernelView(const ViewMap& map) {
  KernelView view = {};
  view.source_offset = map.source_offset();
  view.target_offset = map.target_offset();
  for (const ViewMap::Axis& axis : map.axes()) {
    view.axes[view.axis_count++] = {axis.count, axis.source_stride, axis.target_stride, axis.shift};
  }
  return view;
}

}  // namespace segue::cuda

// SPDX-License-Identifier: Apache-2.0
//
// What staging costs an engine: matrix products keep the GPU busy on a stream of their own, with
// and without a version being brought to the device and preflighted beside them. The products are
// cuBLAS's, loaded at run time; without it this is left out and said so.
#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <memory>

#include "bench/bandwidth.h"
#include "bench/gpu/check.h"
#include "bench/gpu/updates.h"
#include "delta/applier.h"

namespace segue::gpu_check {
namespace {

constexpr int kSide = 8192;
constexpr unsigned kProductCount = 300;  // About half a second on an H200.
constexpr double kSlowdownMax = 1.03;
constexpr std::uint64_t kStagedSize = 16ull << 30;

// Names and numbers of cuBLAS's interface (version 12 and 13).
using Handle = void*;
using CreateFunction = int (*)(Handle*);
using SetStreamFunction = int (*)(Handle, CUstream);
using GemmFunction = int (*)(Handle, int, int, int, int, int, const void*, const void*, int, int,
                             const void*, int, int, const void*, void*, int, int, int, int);
constexpr int kBf16 = 14;
constexpr int kCompute32 = 68;
constexpr int kDefaultAlgorithm = -1;

class Products {
 public:
  // Unsupported without the library.
  static Result<std::unique_ptr<Products>> Open(const Gpu& gpu) {
    // Tests have a library of their own.
    const char* const named = std::getenv("SEGUE_CUBLAS");
    void* library = named != nullptr ? dlopen(named, RTLD_NOW | RTLD_LOCAL) : nullptr;
    for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"}) {
      if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (library == nullptr) return Unsupported("no libcublas.so here");
    auto products = std::unique_ptr<Products>(new Products);
    const auto create = reinterpret_cast<CreateFunction>(dlsym(library, "cublasCreate_v2"));
    const auto set = reinterpret_cast<SetStreamFunction>(dlsym(library, "cublasSetStream_v2"));
    products->gemm_ = reinterpret_cast<GemmFunction>(dlsym(library, "cublasGemmEx"));
    if (create == nullptr || set == nullptr || products->gemm_ == nullptr) {
      return Unsupported("libcublas.so lacks a function");
    }
    SEGUE_ASSIGN_OR_RETURN(products->stream_,
                           cuda::MakeStream(gpu.driver(), cuda::StreamPriority::kLeast));
    if (create(&products->handle_) != 0 || set(products->handle_, products->stream_.get()) != 0) {
      return Internal("cuBLAS does not begin");
    }
    const std::uint64_t size = 2ull * kSide * kSide;
    for (cuda::DeviceBuffer& matrix : products->matrices_) {
      SEGUE_ASSIGN_OR_RETURN(matrix, gpu.Allocate(size));
      SEGUE_RETURN_IF_ERROR(gpu.Fill(matrix.address(), 0x3c, size));  // Small numbers.
    }
    SEGUE_RETURN_IF_ERROR(gpu.Wait());
    return products;
  }

  Status Enqueue(unsigned count) {
    const float one = 1;
    const float zero = 0;
    for (unsigned i = 0; i < count; ++i) {
      const int result =
          gemm_(handle_, 0, 0, kSide, kSide, kSide, &one, matrices_[0].as<void>(), kBf16, kSide,
                matrices_[1].as<void>(), kBf16, kSide, &zero, matrices_[2].as<void>(), kBf16, kSide,
                kCompute32, kDefaultAlgorithm);
      if (result != 0) return Internal("cuBLAS failed with " + std::to_string(result));
    }
    return {};
  }
  Status Wait(const Gpu& gpu) const {
    SEGUE_CUDA_TRY(gpu.driver(), cuStreamSynchronize, stream_.get());
    return {};
  }

 private:
  Products() = default;

  Handle handle_ = nullptr;  // Lives as long as the process.
  GemmFunction gemm_ = nullptr;
  cuda::Stream stream_;
  std::array<cuda::DeviceBuffer, 3> matrices_;
};

// Seconds of all products, with `beside` called once they run.
template <typename Beside>
Result<double> Time(const Gpu& gpu, Products& products, Beside beside) {
  Status status;
  const double seconds = bench::Seconds([&] {
    status = products.Enqueue(kProductCount);
    if (status.ok()) status = beside();
    if (status.ok()) status = products.Wait(gpu);
  });
  SEGUE_RETURN_IF_ERROR(status);
  return seconds;
}

}  // namespace

Status MeasureBesideProduct(Check& check, Gpu& gpu) {
  const CheckOptions& options = check.options;
  Result<std::unique_ptr<Products>> products = Products::Open(gpu);
  if (products.status().code() == StatusCode::kUnsupported) {
    check.Skip("staging beside a matrix product: " + std::string(products.status().message()));
    return {};
  }
  SEGUE_RETURN_IF_ERROR(products.status());
  SEGUE_ASSIGN_OR_RETURN(const TiledModel model,
                         TiledModel::Generate(options, "nvfp4-0.085", kStagedSize));
  SEGUE_ASSIGN_OR_RETURN(const TiledDelta delta,
                         EncodeAndStage(model, Profile::kSparseZstd, options.threads));
  SEGUE_ASSIGN_OR_RETURN(const DeviceModel live, DeviceModel::Make(gpu, model));
  SEGUE_RETURN_IF_ERROR(live.Restore());
  const auto nothing = [] { return Status(); };
  const auto stage = [&] {
    return Applier(model.plan, delta.staged, live.View(), *gpu.accelerator()).Preflight();
  };
  SEGUE_RETURN_IF_ERROR(stage());  // Both warm up.
  SEGUE_RETURN_IF_ERROR(Time(gpu, **products, nothing).status());
  std::vector<double> alone;
  std::vector<double> beside;
  for (unsigned repeat = 0; repeat < options.repeats; ++repeat) {
    SEGUE_ASSIGN_OR_RETURN(const double without, Time(gpu, **products, nothing));
    SEGUE_ASSIGN_OR_RETURN(const double with, Time(gpu, **products, stage));
    alone.push_back(without);
    beside.push_back(with);
  }
  const double slowdown = bench::Median(beside) / bench::Median(alone);
  check.Add(Figure{"matrix products alone", "bf16, 8192 cubed", 0, bench::Median(alone), {}});
  check.Add(Figure{"matrix products beside staging",
                   model.workload,
                   model.size(),
                   bench::Median(beside),
                   {{"over_alone", slowdown}}});
  check.Add(Goal{"matrix products: beside staging over alone", slowdown, kSlowdownMax, "x"});
  return {};
}

}  // namespace segue::gpu_check

// SPDX-License-Identifier: Apache-2.0
//
// Site.
#include "sim/site.h"

#include "base/file.h"
#include "checkpoint/testing.h"

namespace segue::sim {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kChunkSize = 4096;
constexpr milliseconds kRestartTimeMax(80);

// Sizes beside the chunk's, types of several widths, one tensor empty, one of one element.
Plan SmallPlan() {
  return Plan::Make({{"a.weight", Dtype::kBF16, {60, 90}},
                     {"b.empty", Dtype::kF16, {0, 4}},
                     {"c.weight", Dtype::kF32, {2500}},
                     {"d.packed", Dtype::kU8, {9001}},
                     {"e.ids", Dtype::kI64, {300}},
                     {"f.scale", Dtype::kF32, {}}},
                    kChunkSize)
      .value();
}

}  // namespace

Shape Shape::FromSeed(Random& random) {
  constexpr const char* kProfileNames[] = {"sparse-zstd", "snappy-zstd", "lz4-zstd", "zstd"};
  constexpr std::uint64_t kRetains[] = {0, 0, 1, 3, 6};
  Shape shape;
  shape.hosts = 1 + static_cast<unsigned>(random.Below(3));
  shape.second_trainer = random.Below(3) == 0;
  shape.buffers = random.Below(3) == 0;
  shape.owners = random.Below(3) == 0;
  shape.anchors = random.Below(3) == 0;
  shape.goes_back = random.Below(3) == 0;
  shape.pruner = random.Below(4) == 0;
  shape.retain = kRetains[random.Below(5)];
  shape.profile = kProfileNames[random.Below(2) == 0 ? 0 : random.Below(4)];
  return shape;
}

Site::Site(World& site_world, const Shape& site_shape, std::string directory)
    : world(site_world),
      shape(site_shape),
      plan(SmallPlan()),
      store(world),
      oracle(world, plan),
      memory(world, oracle),
      directory_(std::move(directory)),
      harness_(world.NewProcess("harness", /*mortal=*/false)) {
  oracle.SetOrigin(Save(test::Model(plan, 1)));
}

TrainedModelPtr Site::Save(const test::Model& model) {
  const std::string directory = JoinPath(directory_, "v" + std::to_string(saved_++));
  SEGUE_CHECK(MakeDirectories(directory).ok());
  std::vector<test::TestTensor> tensors;
  const ModelView view = model.view();
  for (std::size_t t = 0; t < plan.tensors().size(); ++t) {
    const PlanTensor& tensor = plan.tensors()[t];
    tensors.push_back({tensor.spec, ByteVector(view.Tensor(t), view.Tensor(t) + tensor.size)});
  }
  if (world.Sabotaged(Sabotage::kWrongFiles) && saved_ > 2) tensors[0].bytes[7] ^= std::byte{1};
  test::WriteSafetensors(JoinPath(directory, "model.safetensors"), tensors);
  return std::make_shared<const TrainedModel>(TrainedModel{model, directory});
}

void Site::Supervise(const std::string& name, std::function<void(Process&)> body) {
  world.Start(harness_, "supervises " + name, [this, name, body = std::move(body)] {
    for (unsigned life = 1;; ++life) {
      Process& process = world.NewProcess(name + "." + std::to_string(life), /*mortal=*/true);
      bool ended = false;
      world.Start(process, "main", [&] {
        body(process);
        ended = true;
      });
      (void)world.Await([&] { return process.over(); });
      if (ended) return;
      world.Sleep(world.UpTo(kRestartTimeMax));
    }
  });
}

}  // namespace segue::sim

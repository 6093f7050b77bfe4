// SPDX-License-Identifier: Apache-2.0
//
// Trainer.
#include "sim/trainer.h"

#include <algorithm>
#include <iterator>

#include "sync/lineage.h"
#include "sync/prune.h"
#include "sync/publisher_internals.h"

namespace segue::sim {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTrainTimeMax(80);
constexpr milliseconds kRetryTimeMax(60);
constexpr std::uint64_t kTries = 4;

std::vector<AnchorWish> AnchorsOf(const Site& site) {
  if (!site.shape.anchors) return {};
  return {{"base", std::nullopt}};
}

PublishOptions OptionsOf(const Site& site, const std::string& base, const std::string& target) {
  PublishOptions options;
  options.store = kStoreUrl;
  options.lineage = kLineageName;
  options.base = base;
  options.target = target;
  options.profile = site.shape.profile;
  options.chunk_size = site.plan.chunk_size();
  options.threads = 1;
  options.retain = site.shape.retain;
  options.anchors = AnchorsOf(site);
  options.owner_timeout_seconds = 0.3;
  return options;
}

std::vector<SourceTensor> TensorsOf(const Site& site, const test::Model& model) {
  std::vector<SourceTensor> tensors;
  const ModelView view = model.view();
  for (std::size_t t = 0; t < site.plan.tensors().size(); ++t) {
    const PlanTensor& tensor = site.plan.tensors()[t];
    tensors.push_back({tensor.spec.name, std::string(DtypeName(tensor.spec.dtype)),
                       tensor.spec.shape, view.Tensor(t), tensor.size});
  }
  return tensors;
}

}  // namespace

void Trainer::Run(Process&) {
  World& world = site_.world;
  State from = StartFrom();
  for (;;) {
    world.Sleep(world.UpTo(kTrainTimeMax));
    const bool last = site_.ending;
    if (last && !primary_) break;
    const TrainedModelPtr next = Train(from.model);
    if (!PublishStep(from, next)) {
      from = StartFrom();
      continue;
    }
    if (last) break;
    from.model = next;
    from.branch = false;
    if (site_.shape.goes_back && world.Chance(0.1)) from = StartFrom();
  }
  --site_.trainers;
}

// The newest version, or an older one if this trainer goes back.
Trainer::State Trainer::StartFrom() {
  World& world = site_.world;
  const auto& models = site_.oracle.models();
  auto chosen = std::prev(models.end());
  const bool back = !site_.ending && site_.shape.goes_back && world.Chance(0.3);
  if (back) {
    const std::uint64_t steps = world.Below(std::min<std::size_t>(4, models.size()));
    std::advance(chosen, -static_cast<long>(steps));
  }
  world.Note("starts from version " + std::to_string(chosen->first));
  return {chosen->second, back, nullptr};
}

TrainedModelPtr Trainer::Train(const TrainedModelPtr& base) {
  constexpr double kShares[] = {0, 0.0001, 0.01, 0.01, 0.1, 0.7};
  World& world = site_.world;
  test::Model model = base->model;
  test::Mutate(site_.plan, model, kShares[world.Below(6)], world.random().Next(),
               world.Chance(0.5) ? 0x100 : 0x3);
  return site_.Save(model);
}

bool Trainer::PublishStep(State& from, const TrainedModelPtr& next) {
  World& world = site_.world;
  const bool owners = site_.shape.owners && world.Chance(0.4);
  publishing_ = next;
  for (std::uint64_t i = 0; i < kTries; ++i) {
    if (i != 0) world.Sleep(world.UpTo(kRetryTimeMax));
    const auto report =
        site_.shape.buffers ? PublishBuffers(from) : PublishCheckpoint(from, owners);
    if (!report.ok()) {
      world.Note("publish", report.status());
      continue;
    }
    world.Note("published version " + std::to_string(report->target_version) +
               (report->already_published ? " (was there)" : ""));
    ++site_.published;
    CheckPublished(report->target_version, next);
    return true;
  }
  return false;
}

Result<PublishReport> Trainer::PublishCheckpoint(const State& from, bool owners) {
  PublishOptions options = OptionsOf(site_, from.model->directory, publishing_->directory);
  options.allow_branch = from.branch;
  std::unique_ptr<BackgroundTask> other;
  if (owners) {
    options.owner_count = 2;
    options.version = site_.oracle.newest() + 1;
    options.session = name_ + "-" + std::to_string(attempts_++);
    PublishOptions second = options;
    second.owner = 1;
    other = environment_.Start(TaskPriority::kNormal, [this, second](const auto&) {
      (void)PublishIn(environment_, second).ok();
    });
  }
  auto report = PublishIn(environment_, options);
  other.reset();
  return report;
}

Result<PublishReport> Trainer::PublishBuffers(State& from) {
  if (!from.publisher) {
    PublisherOptions options;
    options.store = kStoreUrl;
    options.lineage = kLineageName;
    options.profile = site_.shape.profile;
    options.chunk_size = site_.plan.chunk_size();
    options.allow_branch = from.branch;
    options.threads = 1;
    options.retain = site_.shape.retain;
    options.anchors = AnchorsOf(site_);
    const auto base = TensorsOf(site_, from.model->model);
    SEGUE_ASSIGN_OR_RETURN(from.publisher, PublisherInternals::Open(environment_, options, base));
  }
  return from.publisher->Publish(TensorsOf(site_, publishing_->model));
}

StoreState::Observer Trainer::ObserverOf(const TrainedModelPtr& model) {
  return [&site = site_, model](const std::string& name, ByteSpan bytes) {
    const std::size_t slash = name.rfind('/');
    if (name.substr(0, slash) != object_name::VersionFolder(kLineageName)) return;
    const auto version = object_name::ParseVersion(name.substr(slash + 1));
    if (!version) return;
    const auto manifest = Manifest::Parse(bytes, name);
    const Digest digest = DigestModel(site.plan, model->model.view(), 1);
    if (!manifest.ok() || manifest->identity.target_digest != digest) {
      site.world.Violate("manifest", "'" + name + "' does not name the trainer's bytes");
      return;
    }
    // Under a number that was pruned it is no version.
    if (!site.store.Has(object_name::Gone(kLineageName, *version))) {
      site.oracle.Learn(*version, model);
    }
  };
}

void Trainer::CheckPublished(std::uint64_t version, const TrainedModelPtr& model) {
  const TrainedModelPtr known = site_.oracle.Find(version);
  const std::string number = std::to_string(version);
  if (!known) {
    site_.world.Violate("lost", "version " + number + " was reported, and never came into being");
  } else if (!(known->model == model->model)) {
    site_.world.Violate("lost", "version " + number + " was reported, and has other bytes");
  } else if (site_.shape.retain == 0 && !site_.shape.pruner &&
             !site_.store.Has(object_name::Version(kLineageName, version))) {
    site_.world.Violate("lost", "version " + number + " was reported, and is not in the store");
  }
}

void RunPruner(Site& site) {
  World& world = site.world;
  SimEnvironment environment(world, site.store, site.memory, NoObserver,
                             [](const std::byte*) { return nullptr; });
  while (!site.ending) {
    world.Sleep(world.UpTo(4 * kTrainTimeMax));
    const auto store = environment.OpenStore(kStoreUrl, false);
    const auto lineage = Lineage::Open(*store.value(), kLineageName);
    if (!lineage.ok()) continue;
    const PruneReport pruned = PruneVersions(*store.value(), lineage->record(), 1 + world.Below(5));
    world.Note("pruned " + std::to_string(pruned.pruned.size()) + " versions");
  }
}

}  // namespace segue::sim

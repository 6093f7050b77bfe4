// SPDX-License-Identifier: Apache-2.0
//
// Simulation.
#include "sim/simulation.h"

#include <memory>
#include <utility>
#include <vector>

#include "base/scratch_directory.h"
#include "sim/engine.h"
#include "sim/host.h"
#include "sim/site.h"
#include "sim/trainer.h"

namespace segue::sim {
namespace {

// After the last fault: enough for the slowest of all seeds several times over.
constexpr std::uint64_t kConvergeSteps = 60'000;
// How often it is asked whether all is done.
constexpr std::uint64_t kLookInterval = 32;

class Run {
 public:
  Run(const SimulationOptions& options, const std::string& directory)
      : options_(options),
        choices_(options.seed ^ 0x5345475545ull),
        world_(options.seed, Rates(), options.sabotage, options.print),
        site_(world_, Shape::FromSeed(choices_), directory),
        primary_(site_, "trainer", /*primary=*/true),
        second_(site_, "zombie", /*primary=*/false) {}

  SimulationReport Go() {
    Populate();
    while (world_.step() < options_.steps && Step()) {
    }
    if (!world_.violation()) Converge();
    SimulationReport report;
    report.violation = world_.violation();
    report.steps = world_.step();
    report.tail = world_.trace().tail();
    world_.KillAll();
    report.hash = world_.trace().Finish();
    report.published = site_.published;
    report.updates = site_.updates;
    report.takeovers = site_.takeovers;
    report.rebuilds = site_.rebuilds;
    report.deaths = world_.deaths();
    report.resolved = site_.memory.interrupted();
    report.announced = site_.memory.announced();
    return report;
  }

 private:
  FaultRates Rates() { return FaultRates::FromSeed(choices_); }

  void Populate() {
    site_.trainers = site_.shape.second_trainer ? 2 : 1;
    site_.Supervise("trainer", [this](Process& process) { primary_.Run(process); });
    if (site_.shape.second_trainer) {
      site_.Supervise("zombie", [this](Process& process) { second_.Run(process); });
    }
    if (site_.shape.pruner) site_.Supervise("pruner", [this](Process&) { RunPruner(site_); });
    for (unsigned i = 0; i < site_.shape.hosts; ++i) {
      hosts_.push_back(std::make_unique<Host>(site_, i));
      Host& host = *hosts_.back();
      site_.Supervise(host.name(), [&host](Process& process) { host.Run(process); });
      if (host.bound()) continue;
      for (unsigned k = 0; k < 2; ++k) {
        site_.Supervise(
            host.name() + "-reader-" + std::to_string(k),
            [this, &host](Process& process) { RunEngine(site_, process, host.name()); });
      }
      if (host.further().empty()) continue;
      site_.Supervise(host.further() + "-reader", [this, &host](Process& process) {
        RunEngine(site_, process, host.further());
      });
      site_.Supervise(host.name() + "-pair-reader", [this, &host](Process& process) {
        RunPairEngine(site_, process, host.name(), host.further());
      });
    }
  }

  bool Step() {
    if (options_.sabotage == Sabotage::kRealClock && world_.step() == 100) {
      world_.Note(std::to_string(std::chrono::steady_clock::now().time_since_epoch().count()));
    }
    return world_.Step() && !world_.violation();
  }

  void Converge() {
    world_.StopFaults();
    site_.store.Settle();
    site_.ending = true;
    world_.Note("faults have stopped");
    std::string why = "a trainer cannot publish";
    for (std::uint64_t i = 0; i < kConvergeSteps; ++i) {
      if (i % kLookInterval == 0 && AllAtLast(why)) return;
      if (!Step()) break;
    }
    if (!world_.violation()) world_.Violate("convergence", why);
  }

  bool AllAtLast(std::string& why) {
    if (site_.trainers != 0) return false;
    for (const auto& host : hosts_) {
      if (!host->HasConverged(why)) return false;
    }
    return true;
  }

  const SimulationOptions& options_;
  Random choices_;
  World world_;
  Site site_;
  Trainer primary_;
  Trainer second_;
  std::vector<std::unique_ptr<Host>> hosts_;
};

}  // namespace

void SimulationReport::Add(const SimulationReport& other) {
  steps += other.steps;
  published += other.published;
  updates += other.updates;
  takeovers += other.takeovers;
  rebuilds += other.rebuilds;
  deaths += other.deaths;
  resolved += other.resolved;
  announced += other.announced;
}

SimulationReport RunSimulation(const SimulationOptions& options) {
  const auto scratch = ScratchDirectory::Make(options.scratch, "segue-sim");
  SEGUE_CHECK(scratch.ok());
  return std::make_unique<Run>(options, scratch->path())->Go();
}

}  // namespace segue::sim

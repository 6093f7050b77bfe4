// SPDX-License-Identifier: Apache-2.0
//
// World: the one thread of a simulation. It owns the clock, the random numbers, the fibers and the
// trace; whatever may happen next is decided here and nowhere else, so that a seed says it all.
//
// A process is what dies as one: its fibers and all that they own. Death is an exception that is
// thrown out of every place where its fibers may suspend; destructors run, and nothing that they do
// reaches the world. Fibers without a process that may die are the harness itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/random.h"
#include "sim/faults.h"
#include "sim/fiber.h"
#include "sim/trace.h"
#include "sync/environment.h"

namespace segue::sim {

using Time = Environment::Clock::time_point;
using Duration = Environment::Clock::duration;

// Thrown in the fibers of a process that dies; caught by the world alone.
struct Crash {};

class Process {
 public:
  Process(std::string name, bool mortal) : name_(std::move(name)), mortal_(mortal) {}

  const std::string& name() const { return name_; }
  bool mortal() const { return mortal_; }
  bool dead() const { return dead_; }
  // Whether all its fibers have ended, by themselves or by its death.
  bool over() const { return fibers_ == 0; }

 private:
  friend class World;
  const std::string name_;
  const bool mortal_;
  bool dead_ = false;
  unsigned fibers_ = 0;
};

// What a checker found.
struct Violation {
  std::string checker;
  std::string what;
  std::uint64_t step = 0;
};

class World {
 public:
  World(std::uint64_t seed, const FaultRates& rates, Sabotage sabotage, bool print);
  ~World();

  // --- The harness ---

  Process& NewProcess(const std::string& name, bool mortal);
  // A fiber of `process` that runs `body`; the number names it.
  std::uint64_t Start(Process& process, const std::string& label, std::function<void()> body);
  bool IsOver(std::uint64_t fiber) const;
  // One fiber until it suspends; false when none will ever run again.
  bool Step();
  // Ends every fiber.
  void KillAll();
  void StopFaults() { faults_on_ = false; }
  bool faults_on() const { return faults_on_; }
  // Calls `effect` at `time`, whoever has died by then.
  void At(Time time, std::function<void()> effect);

  // --- Inside fibers ---

  Process& process() const;
  // Another may run, and the process may die.
  void Point(const char* where);
  void Sleep(Duration time, const std::stop_token& stop = {});
  // Until `ready()`; false when `deadline` came first.
  bool Await(const std::function<bool()>& ready, Time deadline = Time::max());
  // Until the fiber has ended. For destructors: nothing is thrown here.
  void Join(std::uint64_t fiber);
  // The process dies here.
  [[noreturn]] void Die(const char* where);
  // Whether it is to die here, where the caller has something to do first.
  bool MustDie();

  // --- Anywhere ---

  Random& random() { return random_; }
  std::uint64_t Below(std::uint64_t bound) { return random_.Below(bound); }
  bool Chance(double probability) { return random_.Uniform() < probability; }
  // Uniform up to `max`.
  Duration UpTo(Duration max);
  // Whether this fault happens here. None once faults have stopped.
  bool Fault(double rate) { return faults_on_ && rate > 0 && Chance(rate); }
  const FaultRates& rates() const { return rates_; }
  Sabotage sabotage() const { return sabotage_; }
  bool Sabotaged(Sabotage kind) const { return sabotage_ == kind; }
  Time now() const { return now_; }
  std::uint64_t step() const { return step_; }
  std::uint64_t deaths() const { return deaths_; }
  Trace& trace() { return trace_; }
  // A line with step, time and fiber in front.
  void Note(const std::string& what);
  // The same with the outcome's code; its message goes to whoever reads along.
  void Note(const std::string& what, const Status& outcome);
  void Violate(const std::string& checker, const std::string& what);
  const std::optional<Violation>& violation() const { return violation_; }

 private:
  struct Task;

  void Suspend();
  void RunTask(Task& task);
  void KillProcess(Process& process);
  void ForgetFinished();
  bool AdvanceClock();
  void RunEffects();

  Random random_;
  const FaultRates rates_;
  const Sabotage sabotage_;
  Trace trace_;
  bool faults_on_ = true;
  Time now_{std::chrono::seconds(1)};
  std::uint64_t step_ = 0;
  std::uint64_t deaths_ = 0;
  std::uint64_t next_task_ = 0;
  std::map<std::uint64_t, std::unique_ptr<Task>> tasks_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::multimap<Time, std::function<void()>> effects_;
  Task* current_ = nullptr;
  Process* to_kill_ = nullptr;
  std::optional<Violation> violation_;
};

}  // namespace segue::sim

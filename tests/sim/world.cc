// SPDX-License-Identifier: Apache-2.0
//
// World: picks the next fiber among those that can run, by the seed; when none can, the clock jumps
// to whatever comes next.
#include "sim/world.h"

#include <algorithm>
#include <cstdio>
#include <exception>

#include "base/check.h"

namespace segue::sim {
namespace {

// The clock goes on by up to this much at each step.
constexpr std::chrono::microseconds kStepTimeMax(60);

}  // namespace

struct World::Task {
  Task(std::uint64_t task_number, Process& task_process, std::string task_label,
       std::function<void()> body)
      : number(task_number),
        process(task_process),
        label(std::move(task_label)),
        fiber(std::move(body)) {}

  bool IsReady(Time now) const { return !ready || now >= wake || ready(); }

  const std::uint64_t number;
  Process& process;
  const std::string label;
  Fiber fiber;
  std::function<bool()> ready;  // What it waits for; none: it can run.
  Time wake = Time::max();      // When it stops waiting.
  bool crashed = false;
};

World::World(std::uint64_t seed, const FaultRates& rates, Sabotage sabotage, bool print)
    : random_(seed), rates_(rates), sabotage_(sabotage), trace_(print) {}

World::~World() { KillAll(); }

Process& World::NewProcess(const std::string& name, bool mortal) {
  processes_.push_back(std::make_unique<Process>(name, mortal));
  return *processes_.back();
}

std::uint64_t World::Start(Process& process, const std::string& label, std::function<void()> body) {
  const std::uint64_t number = next_task_++;
  ++process.fibers_;
  auto guarded = [this, number, body = std::move(body)]() {
    try {
      body();
    } catch (const Crash&) {
      tasks_.at(number)->crashed = true;
    }
  };
  tasks_.emplace(number, std::make_unique<Task>(number, process, process.name() + "/" + label,
                                                std::move(guarded)));
  return number;
}

bool World::IsOver(std::uint64_t fiber) const {
  const auto found = tasks_.find(fiber);
  return found == tasks_.end() || found->second->fiber.finished();
}

bool World::Step() {
  ++step_;
  now_ += std::chrono::microseconds(Below(kStepTimeMax.count() + 1));
  RunEffects();
  std::vector<Task*> ready;
  for (;;) {
    for (const auto& [number, task] : tasks_) {
      if (task->IsReady(now_)) ready.push_back(task.get());
    }
    if (!ready.empty()) break;
    if (!AdvanceClock()) return false;
    RunEffects();
  }
  RunTask(*ready[Below(ready.size())]);
  if (to_kill_ != nullptr) KillProcess(*std::exchange(to_kill_, nullptr));
  ForgetFinished();
  return true;
}

// To the next moment at which something happens by itself.
bool World::AdvanceClock() {
  Time next = effects_.empty() ? Time::max() : effects_.begin()->first;
  for (const auto& [number, task] : tasks_) next = std::min(next, task->wake);
  if (next == Time::max()) return false;
  now_ = std::max(now_, next);
  return true;
}

void World::RunEffects() {
  while (!effects_.empty() && effects_.begin()->first <= now_) {
    const std::function<void()> effect = std::move(effects_.begin()->second);
    effects_.erase(effects_.begin());
    effect();
  }
}

void World::At(Time time, std::function<void()> effect) {
  effects_.emplace(time, std::move(effect));
}

void World::RunTask(Task& task) {
  current_ = &task;
  task.ready = nullptr;
  task.wake = Time::max();
  task.fiber.Resume();
  current_ = nullptr;
}

void World::ForgetFinished() {
  for (auto entry = tasks_.begin(); entry != tasks_.end();) {
    if (!entry->second->fiber.finished()) {
      ++entry;
      continue;
    }
    --entry->second->process.fibers_;
    entry = tasks_.erase(entry);
  }
}

// The youngest fibers go first: who started one may wait for its end in a destructor.
void World::KillProcess(Process& process) {
  process.dead_ = true;
  for (bool any = true; any;) {
    any = false;
    for (auto entry = tasks_.rbegin(); entry != tasks_.rend(); ++entry) {
      Task& task = *entry->second;
      if (&task.process != &process || task.fiber.finished()) continue;
      any = true;
      if (task.fiber.started()) RunTask(task);
      if (task.fiber.started()) continue;
      --process.fibers_;
      tasks_.erase(task.number);
      break;
    }
  }
  ForgetFinished();
}

void World::KillAll() {
  for (const auto& process : processes_) KillProcess(*process);
}

Process& World::process() const {
  SEGUE_CHECK(current_ != nullptr);
  return current_->process;
}

void World::Suspend() {
  Task& task = *current_;
  Fiber::Suspend();
  if (task.process.dead()) throw Crash();
}

bool World::MustDie() {
  Process& own = process();
  return own.mortal() && !own.dead() && Fault(rates_.crash);
}

void World::Die(const char* where) {
  Note(std::string("dies: ") + where);
  ++deaths_;
  to_kill_ = &process();
  process().dead_ = true;
  Suspend();
  std::terminate();
}

void World::Point(const char* where) {
  if (std::uncaught_exceptions() > 0) return;
  if (process().dead()) throw Crash();
  Suspend();
  if (MustDie()) Die(where);
}

void World::Sleep(Duration time, const std::stop_token& stop) {
  (void)Await([&stop] { return stop.stop_requested(); }, now_ + std::max(time, Duration(0)));
}

bool World::Await(const std::function<bool()>& ready, Time deadline) {
  if (std::uncaught_exceptions() > 0) return true;
  if (process().dead()) throw Crash();
  current_->ready = ready;
  current_->wake = deadline;
  Suspend();
  if (MustDie()) Die("waiting");
  return ready();
}

void World::Join(std::uint64_t fiber) {
  while (!IsOver(fiber)) {
    SEGUE_CHECK(std::uncaught_exceptions() == 0);
    current_->ready = [this, fiber] { return IsOver(fiber); };
    Fiber::Suspend();
  }
}

Duration World::UpTo(Duration max) {
  return Duration(static_cast<Duration::rep>(Below(static_cast<std::uint64_t>(max.count()) + 1)));
}

void World::Note(const std::string& what) {
  const auto time = std::chrono::duration_cast<std::chrono::microseconds>(now_.time_since_epoch());
  char head[64];
  std::snprintf(head, sizeof(head), "%6llu %10.3f ms  ", static_cast<unsigned long long>(step_),
                static_cast<double>(time.count()) / 1000);
  trace_.Add(head + (current_ == nullptr ? std::string("world") : current_->label) + "  " + what);
}

void World::Note(const std::string& what, const Status& outcome) {
  Note(what + ": " + std::string(StatusCodeName(outcome.code())));
  if (!outcome.ok()) trace_.Remark(outcome.message());
}

void World::Violate(const std::string& checker, const std::string& what) {
  Note("VIOLATION of '" + checker + "': " + what);
  if (!violation_) violation_ = Violation{checker, what, step_};
}

}  // namespace segue::sim

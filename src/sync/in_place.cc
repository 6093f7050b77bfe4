// SPDX-License-Identifier: Apache-2.0
//
// In place: preflight, journal, apply, sync.
#include "sync/in_place.h"

#include <memory>
#include <utility>

#include "base/file.h"
#include "base/out_of_memory.h"
#include "delta/applier.h"
#include "device/device.h"
#include "sync/journal.h"
#include "sync/live_files.h"
#include "sync/stopwatch.h"

namespace segue {
namespace {

class InPlaceApply {
 public:
  InPlaceApply(const std::string& checkpoint, const Plan& plan, unsigned threads,
               const InPlaceSteps& steps)
      : checkpoint_(checkpoint),
        plan_(plan),
        threads_(threads),
        steps_(steps),
        journal_(checkpoint) {}

  Result<InPlaceReport> Run() {
    SEGUE_RETURN_IF_ERROR(journal_.Prepare());
    const Status prepared = Prepare();
    if (!prepared.ok()) {
      // Nothing has been written to the weights, so the record may go if it is there already.
      const Status removed = journal_.Remove();
      SEGUE_ASSIGN_OR_RETURN(const auto begun, journal_.Read());
      return begun ? HadBegun(removed) : prepared;
    }
    Status finished = CatchOutOfMemory([&] { return Finish(); });
    if (finished.ok()) return std::move(report_);
    return finished.code() == StatusCode::kTainted ? finished : HadBegun(finished);
  }

 private:
  void Tell(std::string_view stage) {
    if (steps_.tell) steps_.tell(stage);
  }

  // All that can fail: fetch, stage, preflight, journal.
  Status Prepare() {
    SEGUE_ASSIGN_OR_RETURN(delta_, steps_.make(journal_.folder()));
    std::vector<std::string> copied;
    SEGUE_ASSIGN_OR_RETURN(live_, OpenLiveFiles(checkpoint_, copied));
    for (const std::string& name : copied) {
      report_.warnings.push_back("'" + name +
                                 "' was shared with another name; it is a private copy now");
    }
    Stopwatch watch;
    Tell("preflight");
    device_ = MakeHostDevice(threads_);
    applier_ = std::make_unique<Applier>(plan_, delta_.staged, live_.view, *device_);
    SEGUE_RETURN_IF_ERROR(applier_->Preflight());
    report_.preflight_s = watch.Lap();
    SEGUE_RETURN_IF_ERROR(ReserveBlocks(live_, applier_->work()));
    Tell("journal");
    SEGUE_RETURN_IF_ERROR(SyncFile(delta_.path));
    JournalRecord record;
    record.base = delta_.base;
    record.target = delta_.target;
    record.payload = delta_.path.substr(journal_.folder().size() + 1);
    record.payload_size = delta_.size;
    record.payload_sha256 = delta_.sha256;
    SEGUE_RETURN_IF_ERROR(journal_.Begin(plan_, applier_->work(), std::move(record)));
    report_.journal_s = watch.Lap();
    return {};
  }

  Status Finish() {
    Stopwatch watch;
    Tell("apply");
    if (steps_.begun) SEGUE_RETURN_IF_ERROR(steps_.begun());
    SEGUE_RETURN_IF_ERROR(applier_->Apply());
    report_.apply_s = watch.Lap();
    Tell("sync");
    SEGUE_RETURN_IF_ERROR(SyncLiveFiles(live_));
    SEGUE_RETURN_IF_ERROR(WriteState(checkpoint_, delta_.target));
    if (steps_.written) SEGUE_RETURN_IF_ERROR(steps_.written());
    SEGUE_RETURN_IF_ERROR(journal_.Remove());
    report_.sync_s = watch.Lap();
    return {};
  }

  // Whatever fails after the journal has begun leaves weights that have to be resolved.
  Status HadBegun(const Status& reason) const {
    return Tainted("the apply of '" + checkpoint_ + "' had begun and could not be finished (" +
                   reason.message() + "); finish it with 'segue resolve --checkpoint " +
                   checkpoint_ + "'");
  }

  const std::string& checkpoint_;
  const Plan& plan_;
  const unsigned threads_;
  const InPlaceSteps& steps_;
  Journal journal_;
  InPlaceDelta delta_;
  LiveFiles live_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Applier> applier_;
  InPlaceReport report_;
};

}  // namespace

Result<InPlaceReport> ApplyInPlace(const std::string& checkpoint, const Plan& plan,
                                   unsigned threads, const InPlaceSteps& steps) {
  return InPlaceApply(checkpoint, plan, threads, steps).Run();
}

}  // namespace segue

// SPDX-License-Identifier: Apache-2.0
//
// segue/publisher.h in Python.
#include "segue/publisher.h"

#include <nanobind/stl/function.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/unique_ptr.h>

#include <mutex>

#include "bindings/callback.h"
#include "bindings/interpreter.h"
#include "bindings/module.h"
#include "bindings/record.h"
#include "bindings/source.h"
#include "segue/fleet.h"

namespace segue::python {
namespace {

// A publisher that is closed lets go of its baseline. One call at a time: another one is refused.
// A child made by fork has not got its threads: it can neither use nor end it.
class PublisherHandle {
 public:
  explicit PublisherHandle(std::unique_ptr<Publisher> publisher)
      : publisher_(std::move(publisher)) {
    Note();
  }
  ~PublisherHandle() { Close(); }
  PublisherHandle(const PublisherHandle&) = delete;
  PublisherHandle& operator=(const PublisherHandle&) = delete;

  template <typename Call>
  auto Use(Call call) {
    return Run([&]() -> decltype(call(*publisher_)) {
      SEGUE_RETURN_IF_ERROR(process_.Check("the publisher"));
      const std::unique_lock lock(mutex_, std::try_to_lock);
      if (!lock.owns_lock()) return InvalidArgument("another thread uses this publisher");
      if (!publisher_) return InvalidArgument("the publisher is closed");
      auto outcome = call(*publisher_);
      Note();
      return outcome;
    });
  }
  // What it holds, between calls; while one runs, as it was before.
  struct Held {
    std::optional<std::uint64_t> version;
    std::uint64_t baseline_bytes = 0;
  };
  Held held() {
    return Run([&]() -> Result<Held> {
      SEGUE_RETURN_IF_ERROR(process_.Check("the publisher"));
      const std::lock_guard lock(held_mutex_);
      if (!held_) return InvalidArgument("the publisher is closed");
      return *held_;
    });
  }
  void Close() {
    if (!process_.Check("").ok()) {
      (void)publisher_.release();
      return;
    }
    const WithoutGil released;
    const std::lock_guard lock(mutex_);
    publisher_.reset();
    Note();
  }

 private:
  void Note() {
    std::optional<Held> found;
    if (publisher_) found = {publisher_->version(), publisher_->baseline_bytes()};
    const std::lock_guard lock(held_mutex_);
    held_ = found;
  }

  const OwnProcess process_;
  std::mutex mutex_;
  std::unique_ptr<Publisher> publisher_;
  std::mutex held_mutex_;
  std::optional<Held> held_;
};

std::unique_ptr<PublisherHandle> OpenFromTensors(const PublisherOptions& options,
                                                 std::vector<Source> base) {
  const std::vector<SourceTensor> sources = MakeSources(std::move(base));
  return std::make_unique<PublisherHandle>(
      Run([&] { return Publisher::Open(options, std::span<const SourceTensor>(sources)); }));
}

// `read`: called with name, address and bytes of each of `owned`, one after the other.
std::unique_ptr<PublisherHandle> OpenFromReader(const PublisherOptions& options,
                                                std::vector<Source> base,
                                                const std::vector<std::string>& owned,
                                                nb::object read) {
  const std::vector<SourceTensor> specs = MakeSources(std::move(base));
  HeldCallables held;
  const Callback callback(std::move(read), "the reader of tensors", held);
  RaisedInCallback raised;
  const TensorReader reader = [&](const std::string& name, std::byte* to, std::uint64_t size) {
    return callback.CallOnly(&raised, name, reinterpret_cast<std::uintptr_t>(to), size);
  };
  return std::make_unique<PublisherHandle>(
      Run([&] { return Publisher::Open(options, specs, owned, reader); }, &raised));
}

std::unique_ptr<PublisherHandle> OpenFromCheckpoint(
    const PublisherOptions& options, const std::string& checkpoint,
    const std::optional<std::vector<std::string>>& owned) {
  return std::make_unique<PublisherHandle>(
      Run([&] { return Publisher::Open(options, checkpoint, owned); }));
}

Cohort MakeCohort(std::vector<std::string> engines, const std::string& token, double timeout) {
  Cohort cohort;
  cohort.engines = std::move(engines);
  cohort.probe = HttpEngineProbe(token);
  cohort.timeout = Milliseconds(timeout);
  return cohort;
}

// How long one look at engines may take before signals are looked at.
constexpr double kLookSeconds = 0.5;

// In pieces, so that Ctrl-C ends it.
void WaitFor(PublisherHandle& publisher, const std::vector<std::string>& engines,
             const std::string& token, double timeout) {
  const auto limit = std::chrono::steady_clock::now() + Milliseconds(timeout);
  for (;;) {
    const double left =
        std::chrono::duration<double>(limit - std::chrono::steady_clock::now()).count();
    const bool last = left <= kLookSeconds;
    const Cohort cohort = MakeCohort(engines, token, last ? left : kLookSeconds);
    Status status;
    publisher.Use([&](Publisher& used) {
      status = used.WaitForAcknowledgement(cohort);
      return Status();
    });
    if (status.ok() || last || status.code() != StatusCode::kUnavailable) {
      OrRaise(status);
      return;
    }
    RaisePendingSignal();
  }
}

void BindReports(nb::module_& module) {
  Record<AnchorReport>(module, "AnchorReport", "An anchor of the lineage after a publish.")
      .Field("name", &AnchorReport::name, "As it was set.")
      .Field("version", &AnchorReport::version, "The version that it names.")
      .Field("target_version", &AnchorReport::target_version, "Where its delta leads.")
      .Field("payload_bytes", &AnchorReport::payload_bytes, "Of its delta.");
  using R = PublishReport;
  Record<R>(module, "PublishReport", "What a publish did; sizes in bytes, times in seconds.")
      .Field("lineage", &R::lineage, "That the version is of.")
      .Field("base_version", &R::base_version, "What the delta starts from.")
      .Field("target_version", &R::target_version, "The version that was made.")
      .Field("base_digest", &R::base_digest, "32 hexadecimal digits.")
      .Field("target_digest", &R::target_digest, "32 hexadecimal digits.")
      .Field("already_published", &R::already_published, "The same content was there before.")
      .Field("committed", &R::committed, "The version is visible.")
      .Field("model_bytes", &R::model_bytes, "Of all tensors of the model, of every owner.")
      .Field("payload_bytes", &R::payload_bytes, "Of all owners known to this call.")
      .Field("published_bytes", &R::published_bytes, "With manifest, plan and layout.")
      .Field("changed_chunks", &R::changed_chunks, "Chunks that the payloads change.")
      .Field("changed_elements", &R::changed_elements, "Elements that have another value.")
      .Field("open_s", &R::open_s, "Opening what is compared; 0 for tensors from memory.")
      .Field("encode_s", &R::encode_s, "Diff and encode.")
      .Field("commit_s", &R::commit_s, "Until the version was visible.")
      .Field("anchor_s", &R::anchor_s, "After that, for anchors.")
      .Field("anchors", &R::anchors, "AnchorReport of each anchor of the lineage, as it is now.")
      .Field("pruned", &R::pruned, "Versions removed.")
      .Field("warnings", &R::warnings, "What went wrong beside the version, which stands.");
}

void BindOptions(nb::module_& module) {
  using O = PublisherOptions;
  nb::class_<O>(module, "PublisherOptions", "As in segue/publisher.h.")
      .def(nb::init<>())
      .def_rw("store", &O::store)
      .def_rw("lineage", &O::lineage)
      .def_rw("profile", &O::profile)
      .def_rw("chunk_size", &O::chunk_size, nb::arg().none())
      .def_rw("shard_size", &O::shard_size)
      .def_rw("allow_branch", &O::allow_branch)
      .def_rw("threads", &O::threads)
      .def_rw("device", &O::device)
      .def_rw("baseline_on_host", &O::baseline_on_host)
      .def_rw("owner", &O::owner)
      .def_rw("owner_count", &O::owner_count)
      .def_rw("session", &O::session)
      .def_rw("owner_timeout_seconds", &O::owner_timeout_seconds)
      .def_rw("retain", &O::retain)
      .def_rw("missing_is_unchanged", &O::missing_is_unchanged)
      .def(
          "set_keys",
          [](O& options, std::string sign, std::vector<std::string> known) {
            options.keys = {std::move(sign), std::move(known)};
          },
          nb::arg("sign_key"), nb::arg("public_keys"))
      .def(
          "add_anchor",
          [](O& options, std::string name, std::optional<std::uint64_t> version) {
            options.anchors.push_back({std::move(name), version});
          },
          nb::arg("name"), nb::arg("version").none())
      .def(
          "set_cohort",
          [](O& options, std::vector<std::string> engines, const std::string& token,
             double timeout) { options.cohort = MakeCohort(std::move(engines), token, timeout); },
          nb::arg("engines"), nb::arg("token"), nb::arg("timeout"));
}

void BindVersions(nb::class_<PublisherHandle>& publisher) {
  publisher
      .def(
          "begin",
          [](PublisherHandle& self, std::optional<std::uint64_t> version) {
            self.Use([&](Publisher& used) { return used.Begin(version); });
          },
          nb::arg("version").none())
      .def(
          "put",
          [](PublisherHandle& self, Source source) {
            const SourceTensor tensor = MakeSource(std::move(source));
            self.Use([&](Publisher& used) { return used.Put(tensor); });
          },
          nb::arg("source"))
      .def(
          "put_all",
          [](PublisherHandle& self, std::vector<Source> sources) {
            const std::vector<SourceTensor> tensors = MakeSources(std::move(sources));
            self.Use(
                [&](Publisher& used) { return used.Put(std::span<const SourceTensor>(tensors)); });
          },
          nb::arg("sources"))
      .def(
          "put_unchanged",
          [](PublisherHandle& self, const std::string& name) {
            self.Use([&](Publisher& used) { return used.PutUnchanged(name); });
          },
          nb::arg("name"))
      .def("digests",
           [](PublisherHandle& self) {
             const VersionDigests found = self.Use([](Publisher& used) { return used.Digests(); });
             return std::pair(found.base, found.target);
           })
      .def(
          "settle",
          [](PublisherHandle& self, const std::string& base, const std::string& target) {
            self.Use([&](Publisher& used) { return used.Settle({base, target}); });
          },
          nb::arg("base"), nb::arg("target"))
      .def("upload",
           [](PublisherHandle& self) { self.Use([](Publisher& used) { return used.Upload(); }); })
      .def("commit",
           [](PublisherHandle& self) {
             return self.Use([](Publisher& used) { return used.Commit(); });
           })
      .def("discard",
           [](PublisherHandle& self) {
             self.Use([](Publisher& used) {
               used.Discard();
               return Status();
             });
           })
      .def(
          "publish",
          [](PublisherHandle& self, std::vector<Source> sources,
             std::optional<std::uint64_t> version) {
            const std::vector<SourceTensor> tensors = MakeSources(std::move(sources));
            return self.Use([&](Publisher& used) { return used.Publish(tensors, version); });
          },
          nb::arg("sources"), nb::arg("version").none());
}

}  // namespace

void BindPublisher(nb::module_& module) {
  module.def(
      "add_digests",
      [](const std::vector<std::string>& digests) { return OrRaise(AddDigests(digests)); },
      nb::arg("digests"), "The digest of tensors that have these digests.");
  BindReports(module);
  BindOptions(module);
  nb::class_<PublisherHandle> publisher(module, "Publisher", "As in segue/publisher.h.");
  BindVersions(publisher);
  publisher.def_static("from_tensors", &OpenFromTensors, nb::arg("options"), nb::arg("base"))
      .def_static("from_reader", &OpenFromReader, nb::arg("options"), nb::arg("base"),
                  nb::arg("owned"), nb::arg("read"))
      .def_static("from_checkpoint", &OpenFromCheckpoint, nb::arg("options"), nb::arg("checkpoint"),
                  nb::arg("owned").none())
      .def("wait_for", &WaitFor, nb::arg("engines"), nb::arg("token"), nb::arg("timeout"))
      .def("move_baseline",
           [](PublisherHandle& self) {
             self.Use([](Publisher& used) { return used.MoveBaseline(); });
           })
      .def("baseline_digest",
           [](PublisherHandle& self) {
             return self.Use(
                 [](Publisher& used) { return Result<std::string>(used.BaselineDigest()); });
           })
      .def(
          "settle_baseline",
          [](PublisherHandle& self, const std::string& whole) {
            self.Use([&](Publisher& used) { return used.SettleBaseline(whole); });
          },
          nb::arg("whole"))
      .def("version", [](PublisherHandle& self) { return self.held().version; })
      .def("baseline_bytes", [](PublisherHandle& self) { return self.held().baseline_bytes; })
      .def("close", &PublisherHandle::Close);
}

}  // namespace segue::python

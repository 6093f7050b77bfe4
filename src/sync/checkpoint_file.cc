// SPDX-License-Identifier: Apache-2.0
//
// Delta checkpoints: the chain from the origin to a version, fetched, joined, encoded anew and put
// into a store in one file (docs/format.md, section 8).
#include "segue/checkpoint_file.h"

#include <utility>

#include "base/file.h"
#include "base/scratch_directory.h"
#include "delta/compose.h"
#include "delta/profile.h"
#include "store/archive.h"
#include "store/signed_object.h"
#include "store/signed_store.h"
#include "sync/fetch.h"
#include "sync/lineage.h"

namespace segue {
namespace {

class CheckpointFile {
 public:
  explicit CheckpointFile(const CheckpointFileOptions& options) : options_(options) {}

  Result<CheckpointFileReport> Run() {
    const auto profile = ProfileFromName(options_.profile);
    if (!profile) return InvalidArgument("profile '" + options_.profile + "' is not known");
    SEGUE_RETURN_IF_ERROR(Open());
    SEGUE_ASSIGN_OR_RETURN(ArchiveWriter archive, ArchiveWriter::Create(options_.output));
    // Beside the file, where there is room for payloads.
    SEGUE_ASSIGN_OR_RETURN(const ScratchDirectory scratch,
                           ScratchDirectory::Make(DirectoryOf(options_.output), ".segue-scratch"));
    SEGUE_RETURN_IF_ERROR(EncodeInto(scratch.path(), *profile));
    SEGUE_RETURN_IF_ERROR(Fill(archive, JoinPath(scratch.path(), "payload")));
    SEGUE_RETURN_IF_ERROR(archive.Finish());
    SEGUE_ASSIGN_OR_RETURN(report_.file_bytes, FileSize(options_.output));
    return report_;
  }

 private:
  Status Open() {
    if (!options_.keys.sign_key.empty()) {
      SEGUE_ASSIGN_OR_RETURN(sign_key_, SigningKey::Load(options_.keys.sign_key));
    }
    SEGUE_ASSIGN_OR_RETURN(auto store, OpenStore(options_.store, /*create=*/false));
    SEGUE_ASSIGN_OR_RETURN(store_, WithKeys(std::move(store), options_.keys));
    SEGUE_ASSIGN_OR_RETURN(lineage_, Lineage::Open(*store_, options_.lineage));
    SEGUE_ASSIGN_OR_RETURN(plan_, lineage_.ReadPlan(*store_));
    const LineageRecord& origin = lineage_.record();
    const std::uint64_t version = options_.version.value_or(lineage_.newest());
    SEGUE_ASSIGN_OR_RETURN(chain_, lineage_.Path(origin.origin_version, version));
    if (chain_.empty()) {
      return InvalidArgument("version " + std::to_string(version) +
                             " is the lineage's origin itself: there is nothing to write");
    }
    DeltaIdentity& identity = manifest_.identity;
    identity = chain_.back().identity;
    identity.base_version = origin.origin_version;
    identity.base_digest = origin.origin_digest;
    identity.base_layout = origin.layout;
    identity.profile = options_.profile;
    return {};
  }

  // The chain as one payload of the profile asked for.
  Status EncodeInto(const std::string& scratch, Profile profile) {
    SEGUE_ASSIGN_OR_RETURN(
        const FetchedDelta fetched,
        FetchChain(*store_, plan_, chain_, scratch, options_.threads, options_.progress));
    DeltaIdentity& identity = manifest_.identity;
    if (fetched.staged.difference() != identity.target_digest - identity.base_digest) {
      return Corruption("the deltas to version " + std::to_string(identity.target_version) +
                        " do not lead from the origin's digest to the version's");
    }
    SEGUE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(JoinPath(scratch, "payload")));
    SEGUE_ASSIGN_OR_RETURN(const PayloadSummary summary,
                           ComposeDeltas(plan_, StagedDelta(), fetched.staged, profile,
                                         [&](ByteSpan bytes) { return file.Append(bytes); }));
    SEGUE_RETURN_IF_ERROR(file.Close());
    identity.changed_chunks = summary.row_count;
    identity.changed_elements = summary.changed_elements;
    manifest_.model_bytes = plan_.model_size();
    manifest_.payloads.push_back(
        {0, object_name::Payload(options_.lineage, identity.target_version, 0, 1, summary.sha256),
         summary.size, summary.sha256, summary.row_count});
    return {};
  }

  Status Fill(ArchiveWriter& archive, const std::string& payload) {
    const std::string& name = options_.lineage;
    const DeltaIdentity& identity = manifest_.identity;
    SEGUE_RETURN_IF_ERROR(AddJson(archive, object_name::Lineage(name), lineage_.record().ToJson()));
    SEGUE_RETURN_IF_ERROR(archive.Add(object_name::Plan(name, plan_.digest()), plan_.object()));
    SEGUE_RETURN_IF_ERROR(AddLayout(archive, identity.base_layout));
    if (identity.target_layout != identity.base_layout) {
      SEGUE_RETURN_IF_ERROR(AddLayout(archive, identity.target_layout));
    }
    SEGUE_RETURN_IF_ERROR(archive.AddFile(manifest_.payloads[0].object, payload));
    report_.lineage = name;
    report_.base_version = identity.base_version;
    report_.version = identity.target_version;
    report_.base_digest = identity.base_digest.ToHex();
    report_.digest = identity.target_digest.ToHex();
    report_.steps = chain_.size();
    report_.model_bytes = manifest_.model_bytes;
    report_.changed_elements = identity.changed_elements;
    return AddJson(archive, object_name::Version(name, identity.target_version),
                   manifest_.ToJson());
  }

  // The file's manifest is no version's in the store, so it needs a signature of its own.
  Status AddJson(ArchiveWriter& archive, const std::string& name, const std::string& json) const {
    return archive.Add(name, AsBytes(sign_key_ ? SignObject(*sign_key_, name, json) : json));
  }

  Status AddLayout(ArchiveWriter& archive, const Sha256& digest) {
    SEGUE_ASSIGN_OR_RETURN(const Layout layout, lineage_.ReadLayout(*store_, digest));
    SEGUE_ASSIGN_OR_RETURN(const ByteVector object, layout.MakeObject());
    return archive.Add(object_name::Layout(options_.lineage, digest), object);
  }

  const CheckpointFileOptions& options_;
  std::optional<SigningKey> sign_key_;
  std::unique_ptr<Store> store_;
  Lineage lineage_;
  Plan plan_;
  std::vector<Manifest> chain_;
  Manifest manifest_;
  CheckpointFileReport report_;
};

}  // namespace

Result<CheckpointFileReport> WriteCheckpointFile(const CheckpointFileOptions& options) {
  return CheckpointFile(options).Run();
}

}  // namespace segue

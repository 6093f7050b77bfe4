// SPDX-License-Identifier: Apache-2.0
//
// RelayNode: the store, the environment that hands it out, and the server.
#include "server/relay_node.h"

#include <utility>

#include "base/limits.h"
#include "live/forwarding_environment.h"
#include "store/forwarding_store.h"

namespace segue {
namespace {

// Another environment, but for one store.
class RelayEnvironment final : public ForwardingLiveEnvironment {
 public:
  RelayEnvironment(LiveEnvironment& rest, std::string url, std::shared_ptr<Store> store)
      : ForwardingLiveEnvironment(rest), url_(std::move(url)), store_(std::move(store)) {}

  Result<std::unique_ptr<Store>> OpenStore(const std::string& url, bool create) override {
    if (url != url_) return ForwardingLiveEnvironment::OpenStore(url, create);
    return std::unique_ptr<Store>(std::make_unique<ForwardingStore>(store_));
  }

 private:
  const std::string url_;
  const std::shared_ptr<Store> store_;
};

}  // namespace

RelayNode::RelayNode(const Options& options, std::shared_ptr<RelayStore> store,
                     LiveEnvironment& environment)
    : options_(options),
      store_(std::move(store)),
      environment_(std::make_unique<RelayEnvironment>(environment, options.store, store_)) {}

RelayNode::~RelayNode() { Stop(); }

Result<std::unique_ptr<RelayNode>> RelayNode::Start(const Options& options,
                                                    LiveEnvironment& environment) {
  ListenAddress address;
  if (!options.listen.empty()) {
    SEGUE_ASSIGN_OR_RETURN(address, ListenAddress::Parse(options.listen));
    if (!address.IsLoopback() && options.token.empty()) {
      return InvalidArgument("a relay at '" + address.host +
                             "', which others can reach, needs a token (SEGUE_STORE_TOKEN)");
    }
  }
  SEGUE_ASSIGN_OR_RETURN(std::unique_ptr<Store> origin,
                         environment.OpenStore(options.store, /*create=*/false));
  RelayStore::Options relay = options.relay;
  relay.token = options.token;
  SEGUE_ASSIGN_OR_RETURN(std::shared_ptr<RelayStore> store,
                         RelayStore::Make(std::move(origin), relay));
  std::unique_ptr<RelayNode> node(new RelayNode(options, std::move(store), environment));
  if (!options.listen.empty()) SEGUE_RETURN_IF_ERROR(node->Serve(address));
  return node;
}

Status RelayNode::Serve(const ListenAddress& address) {
  ObjectService::Options service;
  if (!address.IsLoopback()) service.read_token = options_.token;
  service.has_listing = false;
  service.before_read = [this](const std::string& name, const std::string& via) {
    // A client that is no relay waits no longer than one that is.
    return store_->Fetch(name, via.empty() ? "client" : via);
  };
  service_ = std::make_unique<ObjectService>(store_->kept(), std::move(service));
  listener_ = std::make_unique<HttpListener>();
  listener_->SetLimits({.connections = options_.connections != 0 ? options_.connections
                                                                 : limits::kStoreConnectionsMax,
                        .idle = std::chrono::seconds(limits::kStoreKeepAliveSecondsMax),
                        .request = std::chrono::seconds(limits::kHttpReadSecondsMax),
                        .silence = std::chrono::seconds(limits::kHttpReadSecondsMax)});
  service_->Attach(listener_->http());
  return listener_->Start(address);
}

std::string RelayNode::url() const { return listener_ ? listener_->url() : ""; }

StoreServerStatistics RelayNode::served() const {
  return service_ ? service_->statistics() : StoreServerStatistics();
}

void RelayNode::Stop() {
  if (listener_) listener_->Stop();
}

}  // namespace segue

// SPDX-License-Identifier: Apache-2.0
//
// StoreServer: a dir store, its service and the listener, put together.
#include "segue/store_server.h"

#include <utility>

#include "base/limits.h"
#include "segue/token.h"
#include "server/http_listener.h"
#include "server/object_service.h"
#include "store/confined_files.h"

namespace segue {

class StoreServer::Impl {
 public:
  Impl(std::unique_ptr<FileSystem> files, std::unique_ptr<DirStore> store,
       ObjectService::Options options)
      : files_(std::move(files)), store_(std::move(store)), service_(*store_, std::move(options)) {}

  Status Start(const ListenAddress& address) {
    listener_.SetLimits({.connections = limits::kStoreConnectionsMax,
                         .idle = std::chrono::seconds(limits::kStoreKeepAliveSecondsMax),
                         .request = std::chrono::seconds(limits::kHttpReadSecondsMax),
                         .silence = std::chrono::seconds(limits::kHttpReadSecondsMax)});
    service_.Attach(listener_.http());
    return listener_.Start(address);
  }

  void Stop() { listener_.Stop(); }
  std::string url() const { return listener_.url(); }
  StoreServerStatistics statistics() const { return service_.statistics(); }

 private:
  const std::unique_ptr<FileSystem> files_;  // First: the store uses it.
  std::unique_ptr<DirStore> store_;
  ObjectService service_;
  HttpListener listener_;
};

Result<std::unique_ptr<StoreServer>> StoreServer::Start(const StoreServerOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(const ListenAddress address, ListenAddress::Parse(options.listen));
  const bool writable = !options.token.empty();
  if (writable) SEGUE_RETURN_IF_ERROR(CheckToken(options.token));
  ObjectService::Options service;
  service.write_token = options.token;
  if (!address.IsLoopback() && !options.public_read) {
    if (!writable) {
      return InvalidArgument("listening on '" + address.host +
                             "', which others can reach, needs a token, or reads open to all "
                             "(--public-read)");
    }
    service.read_token = options.token;
  }
  // What others reach is the root and nothing that a link below it leads to.
  auto files = std::make_unique<ConfinedFiles>(options.directory);
  SEGUE_ASSIGN_OR_RETURN(
      std::unique_ptr<DirStore> store,
      DirStore::Open({.url = options.directory, .root = options.directory, .create = writable},
                     *files));
  auto impl = std::make_unique<Impl>(std::move(files), std::move(store), std::move(service));
  SEGUE_RETURN_IF_ERROR(impl->Start(address));
  return std::unique_ptr<StoreServer>(new StoreServer(std::move(impl)));
}

StoreServer::StoreServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StoreServer::~StoreServer() = default;
void StoreServer::Stop() { impl_->Stop(); }
std::string StoreServer::url() const { return impl_->url(); }
StoreServerStatistics StoreServer::statistics() const { return impl_->statistics(); }

}  // namespace segue

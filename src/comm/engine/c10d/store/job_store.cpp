#include "comm/engine/c10d/store/job_store.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "comm/engine/c10d/store/folder_store.h"

namespace tessera::detail::inline comm_layer {
namespace {

using Clock = std::chrono::steady_clock;
using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

constexpr int kBacklog = 1024;
constexpr auto kBetweenTries = std::chrono::milliseconds(20);
constexpr int kOneTryMs = 1000;

Addresses resolve(const MeetingPoint& point) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(
      point.address.c_str(), std::to_string(point.port).c_str(), &hints,
      &found);
  TORCH_CHECK_VALUE(
      error == 0, "init: the meeting point ", point.address,
      " has no address: ", gai_strerror(error), "; correct MASTER_ADDR");
  return Addresses(found, &freeaddrinfo);
}

int open_socket(const addrinfo& address, int flags) {
  return socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
}

// LibTorch's server would listen at every address of the host; this socket, at
// one. Returns -1, which means every address, only where the address is not
// this host's own and TESSERA_INTERFACE says that ranks come from outside.
int listen_at(const MeetingPoint& point) {
  const Addresses addresses = resolve(point);
  int error = 0;
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    const int fd = open_socket(*a, 0);
    const int yes = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, kBacklog) == 0) {
      return fd;
    }
    error = errno;
    ::close(fd);
  }
  TORCH_CHECK_VALUE(
      error == EADDRNOTAVAIL && !environment("TESSERA_INTERFACE").empty(),
      "init: rank 0 cannot listen at ", point.address, ":", point.port, ": ",
      std::strerror(error),
      "; set MASTER_PORT to a free port, MASTER_ADDR to an address of this "
      "host, or TESSERA_INTERFACE to listen at every address");
  return -1;
}

bool answers(const addrinfo& address) {
  const int fd = open_socket(address, SOCK_NONBLOCK);
  int error = connect(fd, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd ready{.fd = fd, .events = POLLOUT, .revents = 0};
    socklen_t size = sizeof(error);
    if (poll(&ready, 1, kOneTryMs) > 0) {
      getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    }
  }
  ::close(fd);
  return error == 0;
}

// A client of LibTorch's would try for longer than it is told to, and print a
// stack for each try.
void wait_for_server(
    const MeetingPoint& point, const Launch& launch,
    std::chrono::milliseconds deadline) {
  const auto limit = Clock::now() + deadline;
  const Addresses addresses = resolve(point);
  for (;;) {
    for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
      if (answers(*a)) {
        return;
      }
    }
    TORCH_CHECK_WITH(
        DistNetworkError, Clock::now() < limit, "init: gloo, started by ",
        launch.source, ", rank ", launch.rank, ": rank 0 did not answer at ",
        point.address, ":", point.port, " within the deadline of ",
        deadline.count(),
        " ms; see that it was started and that MASTER_ADDR names its host");
    std::this_thread::sleep_for(kBetweenTries);
  }
}

// A build without libuv refuses to be asked for it, even by a client.
StorePtr tcp_store(
    const std::string& address, ::c10d::TCPStoreOptions options) {
  try {
    return c10::make_intrusive<::c10d::TCPStore>(address, options);
  } catch (const c10::DistStoreError&) {
    options.useLibUV = false;
    return c10::make_intrusive<::c10d::TCPStore>(address, options);
  }
}

}  // namespace

StorePtr open_job_store(
    const MeetingPoint& point, const Launch& launch,
    std::chrono::milliseconds deadline) {
  if (!point.folder.empty()) {
    return c10::make_intrusive<FolderStore>(point.folder);
  }
  ::c10d::TCPStoreOptions options;
  options.port = point.port;
  options.isServer = point.serves;
  options.waitWorkers = false;
  options.timeout = deadline;
  if (!point.serves) {
    wait_for_server(point, launch, deadline);
  } else if (const int fd = listen_at(point); fd >= 0) {
    options.masterListenFd = fd;
  }
  return c10::make_intrusive<::c10d::PrefixStore>(
      "tessera " + environment("TORCHELASTIC_RESTART_COUNT"),
      tcp_store(point.address, options));
}

}  // namespace tessera::detail::inline comm_layer

// A library that mpirun is started with: sockets that would listen on all
// addresses of the host listen on the loopback one. mpirun has settings for the
// interfaces that it advertises, but none for the address it binds.
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

extern "C" __attribute__((visibility("default"))) int bind(
    int socket, const sockaddr* address, socklen_t length) noexcept {
  using Bind = int (*)(int, const sockaddr*, socklen_t);
  static const Bind next = reinterpret_cast<Bind>(dlsym(RTLD_NEXT, "bind"));
  if (address != nullptr && address->sa_family == AF_INET &&
      length >= sizeof(sockaddr_in)) {
    sockaddr_in local = *reinterpret_cast<const sockaddr_in*>(address);
    if (local.sin_addr.s_addr == htonl(INADDR_ANY)) {
      local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      return next(socket, reinterpret_cast<sockaddr*>(&local), sizeof local);
    }
  }
  if (address != nullptr && address->sa_family == AF_INET6 &&
      length >= sizeof(sockaddr_in6)) {
    sockaddr_in6 local = *reinterpret_cast<const sockaddr_in6*>(address);
    if (IN6_IS_ADDR_UNSPECIFIED(&local.sin6_addr)) {
      local.sin6_addr = in6addr_loopback;
      const int done =
          next(socket, reinterpret_cast<sockaddr*>(&local), sizeof local);
      if (done == 0 || errno != EADDRNOTAVAIL) {
        return done;
      }
      // The host has no IPv6 loopback: ::ffff:127.0.0.1.
      local.sin6_addr = {};
      local.sin6_addr.s6_addr[10] = local.sin6_addr.s6_addr[11] = 0xff;
      local.sin6_addr.s6_addr[12] = 127;
      local.sin6_addr.s6_addr[15] = 1;
      return next(socket, reinterpret_cast<sockaddr*>(&local), sizeof local);
    }
  }
  return next(socket, address, length);
}

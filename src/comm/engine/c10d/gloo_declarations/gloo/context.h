// See gloo_declarations/README.md.
#pragma once

#include <chrono>

namespace gloo {

class Context {
 public:
  const int rank;
  const int size;
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace transport {
class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = default;
};
}  // namespace transport

}  // namespace gloo

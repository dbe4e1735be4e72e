// A Python program as a peer: one line of text to it, one line of JSON back.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace tessera::cli {

class PythonPeer {
 public:
  /// Starts `python -c script arguments...`; what it says on standard error is
  /// dropped. `by_hand` tells how a user would start it, for errors.
  PythonPeer(
      const std::string& python, const std::string& script,
      const std::vector<std::string>& arguments, std::string by_hand);
  /// Closes its input and waits until it has ended; ends it after 10 s.
  ~PythonPeer();
  PythonPeer(const PythonPeer&) = delete;
  PythonPeer& operator=(const PythonPeer&) = delete;

  void send(const std::string& line);
  /// Returns its next line; throws std::runtime_error when it has ended, or
  /// says nothing for 5 minutes.
  std::string receive();

 private:
  pid_t pid_ = -1;
  int input_ = -1;
  int output_ = -1;
  std::string by_hand_;
  std::string rest_;
};

/// Returns the Python that can import torch: `wanted` if given, else the
/// project's own, else python3; "" when none can.
std::string find_python(const std::string& wanted);

}  // namespace tessera::cli

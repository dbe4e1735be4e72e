#include "python_peer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace tessera::cli {
namespace {

// The longest round: large tensors, many ranks, a busy machine.
constexpr int kAnswerMilliseconds = 300'000;

// Starts a program with the given files as its standard ones.
pid_t start(std::vector<std::string> words, int input, int output, int error) {
  std::vector<char*> arguments;
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(input, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(error, STDERR_FILENO);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  return pid;
}

bool imports_torch(const std::string& python) {
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  const pid_t pid = start(
      {python, "-c", "import torch.distributed.tensor"}, nothing, nothing,
      nothing);
  close(nothing);
  int status = 0;
  return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

}  // namespace

PythonPeer::PythonPeer(
    const std::string& python, const std::string& script,
    const std::vector<std::string>& arguments, std::string by_hand)
    : by_hand_(std::move(by_hand)) {
  std::vector<std::string> words{python, "-c", script};
  words.insert(words.end(), arguments.begin(), arguments.end());
  int to[2];
  int from[2];
  const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) {
    throw std::runtime_error(std::string("pipe: ") + std::strerror(errno));
  }
  pid_ = start(words, to[0], from[1], nothing);
  const int error = errno;
  close(to[0]);
  close(from[1]);
  close(nothing);
  input_ = to[1];
  output_ = from[0];
  if (pid_ < 0) {
    throw std::runtime_error(std::string("fork: ") + std::strerror(error));
  }
}

PythonPeer::~PythonPeer() {
  close(input_);
  close(output_);
  int status = 0;
  for (int i = 0; i < 100; ++i) {
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      return;
    }
    usleep(100'000);
  }
  kill(pid_, SIGTERM);
  waitpid(pid_, &status, 0);
}

void PythonPeer::send(const std::string& line) {
  const std::string text = line + "\n";
  // A peer that has ended shows in receive().
  struct sigaction ignore {};
  struct sigaction before {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &before);
  static_cast<void>(!write(input_, text.data(), text.size()));
  sigaction(SIGPIPE, &before, nullptr);
}

std::string PythonPeer::receive() {
  size_t end = rest_.find('\n');
  while (end == std::string::npos) {
    char buffer[4096];
    pollfd ready{output_, POLLIN, 0};
    const bool answers = poll(&ready, 1, kAnswerMilliseconds) == 1;
    const ssize_t count =
        answers ? read(output_, buffer, sizeof buffer) : ssize_t{0};
    if (count <= 0) {
      throw std::runtime_error(
          "PyTorch's side ended early or does not answer; run it by hand: " +
          by_hand_);
    }
    rest_.append(buffer, static_cast<size_t>(count));
    end = rest_.find('\n');
  }
  std::string line = rest_.substr(0, end);
  rest_.erase(0, end + 1);
  return line;
}

std::string find_python(const std::string& wanted) {
  const std::vector<std::string> candidates =
      wanted.empty() ? std::vector<std::string>{TESSERA_PYTHON, "python3"}
                     : std::vector<std::string>{wanted};
  for (const std::string& candidate : candidates) {
    if (imports_torch(candidate)) {
      return candidate;
    }
  }
  return "";
}

}  // namespace tessera::cli

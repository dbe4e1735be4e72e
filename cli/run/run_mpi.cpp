#include "run_mpi.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "child.h"
#include "cli/command.h"

extern char** environ;

namespace tessera::cli {
namespace {

constexpr int kMostWaitSeconds = 5;  // for mpirun, when all ranks have ended

// What goes through the control pipe, whole since it is short.
struct RankEvent {
  enum Kind : int { kStarted, kCannotStart, kEnded };
  int kind;
  int rank;
  int value;  // process, errno, status
};

std::string output_name(int rank, const char* stream) {
  return std::to_string(rank) + "." + stream;
}

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

int open_pipe(const std::string& path, int flags) {
  const int fd = open(path.c_str(), flags | O_CLOEXEC);
  if (fd < 0) {
    fail("cannot open " + path);
  }
  return fd;
}

void make_pipe(const std::string& path) {
  if (mkfifo(path.c_str(), 0600) != 0) {
    fail("cannot make " + path);
  }
}

/// Returns the library that keeps mpirun's sockets on the loopback address;
/// found by this program's own run path.
std::string loopback_library() {
  void* library = dlopen("libtessera_loopback.so", RTLD_LAZY);
  link_map* map = nullptr;
  if (library == nullptr || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) {
    throw std::runtime_error(
        "the library that keeps mpirun off the network cannot be loaded: " +
        std::string(dlerror()));
  }
  return map->l_name;
}

/// Where this program was itself started by an MPI launcher, an mpirun inside
/// would take that one's variables for its own.
void forget_outer_mpi() {
  if (std::getenv("PMIX_RANK") == nullptr &&
      std::getenv("PMI_RANK") == nullptr &&
      std::getenv("OMPI_COMM_WORLD_RANK") == nullptr) {
    return;
  }
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    for (const char* start : {"PMIX_", "PMI_", "OMPI_", "ORTE_", "HYD"}) {
      if (text.starts_with(start)) {
        names.emplace_back(text.substr(0, text.find('=')));
      }
    }
  }
  for (const std::string& name : names) {
    unsetenv(name.c_str());
  }
}

/// Settings of Open MPI for ranks of one host; those of the user stay.
void prefer_shared_memory() {
  const std::array<std::pair<const char*, const char*>, 5> settings = {{
      {"OMPI_MCA_pml", "ob1"},
      {"OMPI_MCA_btl", "self,vader"},
      {"OMPI_MCA_btl_tcp_if_include", "lo"},
      {"OMPI_MCA_oob_tcp_if_include", "lo"},
      {"OMPI_MCA_hwloc_base_binding_policy", "none"},
  }};
  for (const auto& [name, value] : settings) {
    setenv(name, value, /*overwrite=*/0);
  }
}

Argv mpirun_argv(
    const Mpirun& mpirun, const RunOptions& options,
    const std::string& folder) {
  const std::string ranks = std::to_string(options.ranks);
  Argv argv = {mpirun.path, "-n", ranks};
  if (mpirun.is_open_mpi()) {
    argv.push_back("--oversubscribe");
    if (geteuid() == 0) {
      argv.push_back("--allow-run-as-root");
    }
  } else {
    argv.insert(argv.end(), {"-iface", "lo"});
  }
  argv.insert(
      argv.end(),
      {own_path(), "run", "-n", ranks, "--engine", "mpi", "--join", folder});
  return argv;
}

/// Each argument ends with a zero byte.
void write_argv(const std::string& file, const Argv& argv) {
  std::ofstream output(file, std::ios::binary);
  for (const std::string& argument : argv) {
    output << argument << '\0';
  }
  if (!output.flush()) {
    fail("cannot write " + file);
  }
}

Argv read_argv(const std::string& file) {
  std::ifstream input(file, std::ios::binary);
  Argv argv;
  for (std::string argument; std::getline(input, argument, '\0');) {
    argv.push_back(argument);
  }
  if (argv.empty()) {
    throw std::runtime_error("cannot read the program's argv from " + file);
  }
  return argv;
}

/// LD_PRELOAD, with the loopback library first.
void preload(const std::string& library) {
  const char* others = std::getenv("LD_PRELOAD");
  const std::string value =
      others == nullptr ? library : library + ":" + others;
  setenv("LD_PRELOAD", value.c_str(), 1);
}

/// The program is to get LD_PRELOAD as the user set it.
void undo_preload(const std::string& library) {
  const char* value = std::getenv("LD_PRELOAD");
  if (value == nullptr || !std::string_view(value).starts_with(library)) {
    return;
  }
  const std::string others = std::string(value).substr(library.size());
  if (others.empty()) {
    unsetenv("LD_PRELOAD");
  } else {
    setenv("LD_PRELOAD", others.substr(1).c_str(), 1);
  }
}

int rank_by_mpirun() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}) {
    if (const char* text = std::getenv(name)) {
      return std::atoi(text);
    }
  }
  throw UsageError("--join is for processes that mpirun starts");
}

/// Opens a pipe that the launcher reads; an error when it does not.
int open_output(const std::string& path) {
  const int fd = open_pipe(path, O_WRONLY | O_NONBLOCK);
  fcntl(fd, F_SETFL, 0);
  return fd;
}

}  // namespace

MpirunProcess::MpirunProcess(
    const PrivateFolder& folder, const RunOptions& options, const Argv& argv,
    const sigset_t& mask, RankOutput& output) {
  const Mpirun mpirun = find_mpirun();
  for (const char* name : {"control", "hold"}) {
    make_pipe(folder.file(name));
  }
  // Open both ways, a named pipe waits for nobody and does not end.
  control_ = open_pipe(folder.file("control"), O_RDWR | O_NONBLOCK);
  hold_ = open_pipe(folder.file("hold"), O_RDWR);
  for (int rank = 0; rank < options.ranks; ++rank) {
    for (const auto& [name, to] :
         {std::pair{"out", STDOUT_FILENO}, {"err", STDERR_FILENO}}) {
      const std::string path = folder.file(output_name(rank, name));
      make_pipe(path);
      output.add(open_pipe(path, O_RDONLY | O_NONBLOCK), rank, to);
    }
  }
  const std::string library = folder.file("loopback.so");
  if (library.find_first_of(" :") != std::string::npos) {
    throw UsageError(
        "engine 'mpi' needs a TMPDIR without blanks and colons, which "
        "LD_PRELOAD cannot hold; got " +
        folder.path());
  }
  if (symlink(loopback_library().c_str(), library.c_str()) != 0) {
    fail("cannot make " + library);
  }
  write_argv(folder.file("program"), argv);
  int said[2];
  if (pipe2(said, O_CLOEXEC) != 0) {
    fail("cannot make a pipe");
  }
  const Child child = start_program(
      mpirun_argv(mpirun, options, folder.path()), mask, SIGTERM, [&] {
        setpgid(0, 0);  // signals of the keyboard go through this process
        forget_outer_mpi();
        prefer_shared_memory();
        preload(library);
        dup2(said[1], STDERR_FILENO);
      });
  close(said[1]);
  messages_ = said[0];
  fcntl(messages_, F_SETFL, O_NONBLOCK);
  if (child.error != 0) {
    errno = child.error;
    fail("cannot start " + mpirun.path);
  }
  pid_ = child.pid;
}

MpirunProcess::~MpirunProcess() {
  for (const int fd : {control_, hold_, messages_}) {
    if (fd >= 0) {
      close(fd);
    }
  }
}

int MpirunProcess::read_events(RankJob& job) {
  RankEvent event{};
  int error = 0;
  while (read(control_, &event, sizeof event) == sizeof event) {
    if (event.rank < 0 || event.rank >= job.size()) {
      continue;
    }
    if (event.kind == RankEvent::kStarted) {
      job.started(event.rank, event.value);
    } else if (event.kind == RankEvent::kCannotStart) {
      error = event.value;
      job.ended(event.rank, 0);
    } else {
      job.ended(event.rank, event.value);
    }
  }
  return error;
}

void MpirunProcess::read_messages() {
  std::array<char, 4096> piece;
  ssize_t got = -1;
  while (messages_ >= 0 &&
         (got = read(messages_, piece.data(), piece.size())) > 0) {
    text_.append(piece.data(), static_cast<size_t>(got));
  }
  if (got == 0) {
    close(std::exchange(messages_, -1));
  }
}

void MpirunProcess::ended(int status) {
  ended_ = true;
  status_ = status;
}

int MpirunProcess::finish() {
  close(std::exchange(hold_, -1));
  constexpr int kPerSecond = 100;
  for (int i = 0; !ended_; ++i) {
    read_messages();
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      ended(status);
    } else if (i == kMostWaitSeconds * kPerSecond) {
      kill(pid_, SIGKILL);
    } else {
      usleep(1000000 / kPerSecond);
    }
  }
  read_messages();
  return exit_code_of(status_);
}

int join_job(const RunOptions& options) {
  const std::string folder = options.join + "/";
  const int rank = rank_by_mpirun();
  const Argv argv = read_argv(folder + "program");
  const int control = open_output(folder + "control");
  const int hold = open_pipe(folder + "hold", O_RDONLY);
  const auto notify = [&](RankEvent::Kind kind, int value) {
    const RankEvent event{kind, rank, value};
    (void)!write(control, &event, sizeof event);
  };
  const int out = open_output(folder + output_name(rank, "out"));
  const int err = open_output(folder + output_name(rank, "err"));
  sigset_t mask;
  sigprocmask(SIG_SETMASK, nullptr, &mask);
  const Child child = start_program(argv, mask, SIGTERM, [&] {
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    undo_preload(folder + "loopback.so");
    describe_rank(options, rank);
    notify(
        RankEvent::kStarted, getpid());  // before anything the program prints
  });
  close(out);
  close(err);
  if (child.error != 0) {
    notify(RankEvent::kCannotStart, child.error);
  } else {
    int status = 0;
    while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
    }
    notify(RankEvent::kEnded, status);
  }
  char nothing = 0;
  (void)!read(hold, &nothing, 1);  // until the launcher closes it
  return 0;
}

}  // namespace tessera::cli

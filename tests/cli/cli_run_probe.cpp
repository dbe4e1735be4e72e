// A program as `tessera run` starts them: adds the ranks up and prints the sum.
//   cli_run_probe 1         rank 1 throws before the sum
//   cli_run_probe uncaught 1  the same, and main() does not catch it
//   cli_run_probe uncaught_std 1  the same with an exception of the C++ library
//   cli_run_probe exit 1    rank 1 exits with 7 after the sum; others go on
//   cli_run_probe kill 1    rank 1 sends itself SIGKILL after the sum
//   cli_run_probe wait      says "up" after the sum and waits for a file's end
#include <c10/util/Exception.h>
#include <signal.h>
#include <unistd.h>

#include <ATen/ops/full.h>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include <tessera/comm/world.h>

namespace {

double sum_of_ranks() {
  const at::Tensor sum = at::full({1}, static_cast<double>(tessera::rank()));
  tessera::init().communicator().all_reduce(sum);
  return sum.item<double>();
}

void do_as_told(const std::string& what, int64_t who) {
  if (what == "wait") {
    if (tessera::rank() == 0) {
      std::printf("up\n");
      std::fflush(stdout);
      while (getchar() != EOF) {
      }
    }
    sum_of_ranks();
    return;
  }
  if (tessera::rank() == who) {
    if (what == "exit") {
      std::exit(7);
    }
    raise(SIGKILL);
  }
  sum_of_ranks();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const int64_t who = argc > 2 ? std::atoi(argv[2]) : -1;
  const bool throws = !what.empty() && what[0] >= '0' && what[0] <= '9';
  const bool is_uncaught = what.starts_with("uncaught");
  const auto body = [&] {
    const int64_t thrower = throws        ? std::atoi(what.c_str())
                            : is_uncaught ? who
                                          : -1;
    if (what == "uncaught_std" && tessera::rank() == thrower) {
      throw std::out_of_range("planted failure");
    }
    TORCH_CHECK(tessera::rank() != thrower, "planted failure");
    const double sum = sum_of_ranks();
    if (tessera::rank() == 0) {
      std::printf(
          "%d ranks, sum %g, engine %s\n",
          static_cast<int>(tessera::world_size()), sum,
          tessera::init().engine().c_str());
      std::fflush(stdout);
    }
    if (!what.empty() && thrower < 0) {
      do_as_told(what, who);
    }
  };
  if (is_uncaught) {
    tessera::run(body);
    return 0;
  }
  try {
    tessera::run(body);
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
    return 3;
  }
  return 0;
}

// Pairs of ranks, one pair per kind of call: the second rank of each makes its
// call late. Prints the kinds that gave the right values.
//
//   late_ranks_probe SECONDS         under a launcher, 2 ranks per kind
//   late_ranks_probe SECONDS threads on threads of its own
//   late_ranks_probe kinds           how many kinds there are
//   late_ranks_probe stopped BYTES   two ranks exchange; "begun" on their
//   output
//                                    just before, for a test that stops one
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <tessera/comm/world.h>

namespace {

using tessera::Communicator;

// What rank `place` of a pair contributes: distinct values.
at::Tensor part(int64_t place, int64_t count = 3) {
  return at::arange(count, at::kLong) + 100 * (place + 1);
}
at::Tensor room(int64_t count) {
  return at::zeros({count}, at::kLong);
}

struct Kind {
  const char* name;
  /// Makes the call; returns what came, and what should have come.
  std::pair<at::Tensor, at::Tensor> (*call)(const Communicator& pair);
};

const Kind kKinds[] = {
    {"all_reduce",
     [](const Communicator& pair) {
       const at::Tensor sum = part(pair.rank());
       pair.all_reduce(sum);
       return std::pair(sum, part(0) + part(1));
     }},
    {"all_gather",
     [](const Communicator& pair) {
       const at::Tensor all = room(6);
       pair.all_gather(all, part(pair.rank()));
       return std::pair(all, at::cat({part(0), part(1)}));
     }},
    {"reduce_scatter",
     [](const Communicator& pair) {
       const at::Tensor mine = room(2);
       pair.reduce_scatter(mine, part(pair.rank(), 4));
       return std::pair(
           mine, (part(0, 4) + part(1, 4)).narrow(0, 2 * pair.rank(), 2));
     }},
    {"all_to_all",
     [](const Communicator& pair) {
       const at::Tensor mine = room(4);
       pair.all_to_all(mine, part(pair.rank(), 4));
       const auto run = [&](int64_t of) {
         return part(of, 4).narrow(0, 2 * pair.rank(), 2);
       };
       return std::pair(mine, at::cat({run(0), run(1)}));
     }},
    {"broadcast from the late rank",
     [](const Communicator& pair) {
       const at::Tensor value = part(pair.rank());
       pair.broadcast(value, 1);
       return std::pair(value, part(1));
     }},
    {"broadcast to the late rank",
     [](const Communicator& pair) {
       const at::Tensor value = part(pair.rank());
       pair.broadcast(value, 0);
       return std::pair(value, part(0));
     }},
    {"scatter",
     [](const Communicator& pair) {
       const at::Tensor mine = room(2);
       pair.scatter(mine, pair.rank() == 1 ? part(1, 4) : at::Tensor(), 1);
       return std::pair(mine, part(1, 4).narrow(0, 2 * pair.rank(), 2));
     }},
    {"gather",
     [](const Communicator& pair) {
       const at::Tensor all = pair.rank() == 0 ? room(6) : at::Tensor();
       pair.gather(all, part(pair.rank()), 0);
       return pair.rank() == 0 ? std::pair(all, at::cat({part(0), part(1)}))
                               : std::pair(room(1), room(1));
     }},
    {"send to the late rank",
     [](const Communicator& pair) {
       const at::Tensor value = part(pair.rank());
       pair.rank() == 0 ? pair.send(value, 1) : pair.recv(value, 0);
       return std::pair(value, part(0));
     }},
    {"recv from the late rank",
     [](const Communicator& pair) {
       const at::Tensor value = part(pair.rank());
       pair.rank() == 1 ? pair.send(value, 0) : pair.recv(value, 1);
       return std::pair(value, part(1));
     }},
    {"both send",
     [](const Communicator& pair) {
       const at::Tensor mine = part(pair.rank());
       const at::Tensor other = room(3);
       tessera::Communicator::Work sent =
           pair.send_async(mine, 1 - pair.rank());
       pair.recv(other, 1 - pair.rank());
       sent.wait();
       return std::pair(other, part(1 - pair.rank()));
     }},
    {"barrier",
     [](const Communicator& pair) {
       pair.barrier();
       return std::pair(room(1), room(1));
     }},
};
constexpr auto kKindCount = static_cast<int64_t>(std::size(kKinds));

void check_pair(double seconds) {
  const tessera::World world = tessera::init();
  TORCH_CHECK(
      world.size() == 2 * kKindCount, "late_ranks_probe: ", world.size(),
      " ranks; start ", 2 * kKindCount);
  const Kind& kind = kKinds[world.rank() / 2];
  const int64_t first = world.rank() / 2 * 2;
  const Communicator pair = world.communicator({first, first + 1});
  pair.barrier();  // connected
  if (pair.rank() == 1) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }
  const auto [got, want] = kind.call(pair);
  TORCH_CHECK(got.equal(want), kind.name, ": got ", got, ", want ", want);
  if (pair.rank() == 0) {
    std::printf("right: %s\n", kind.name);
    std::fflush(stdout);
  }
  world.communicator().barrier();  // nobody leaves while others are in a call
}

void exchange(int64_t bytes) {
  const tessera::World world = tessera::init();
  const Communicator pair = world.communicator();
  pair.barrier();
  const at::Tensor sum = at::full({bytes / 8}, world.rank() + 1, at::kLong);
  std::printf("begun %d\n", static_cast<int>(world.rank()));
  std::fflush(stdout);
  pair.all_reduce(sum);
  TORCH_CHECK(sum.eq(3).all().item<bool>(), "the sum is wrong");
  std::printf("right %d\n", static_cast<int>(world.rank()));
  std::fflush(stdout);
  pair.barrier();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    if (what == "kinds") {
      std::printf("%d\n", static_cast<int>(kKindCount));
    } else if (what == "stopped") {
      exchange(std::atoll(argv[2]));
    } else if (argc > 2) {
      tessera::run_ranks(
          2 * kKindCount, [&] { check_pair(std::atof(argv[1])); });
    } else {
      check_pair(std::atof(argv[1]));
    }
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
    return 3;
  }
  return 0;
}

// A rank writes its input before the collective that reads it is complete. The
// engine copies with instrumented code, so a ThreadSanitizer build must report
// it. The other rank reads after the write in time, but nothing orders the two:
// the flags are relaxed.
#include <tessera/comm/world.h>

#include <atomic>
#include <iostream>
#include <thread>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace {

std::atomic<bool> written = false;
std::atomic<bool> was_read = false;

void wait_for(const std::atomic<bool>& flag) {
  while (!flag.load(std::memory_order_relaxed)) {
    std::this_thread::yield();
  }
}

}  // namespace

int main() {
  tessera::run_ranks(2, [] {
    const tessera::Communicator comm = tessera::init().communicator();
    const at::Tensor input = at::zeros({30000});
    const at::Tensor output = at::empty({60000});
    if (comm.rank() == 0) {
      tessera::Communicator::Work work = comm.all_gather_async(output, input);
      input.mutable_data_ptr<float>()[7] = 1;
      written.store(true, std::memory_order_relaxed);
      wait_for(was_read);
      work.wait();
    } else {
      wait_for(written);
      comm.all_gather(output, input);
      was_read.store(true, std::memory_order_relaxed);
    }
  });
  std::cout << "ran to the end\n";
  return 0;
}

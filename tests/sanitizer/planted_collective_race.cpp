// A rank writes its input before the collective that reads it is complete. The
// engine copies with instrumented code, so a ThreadSanitizer build must report
// it.
#include <tessera/comm/world.h>

#include <iostream>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

int main() {
  tessera::run_ranks(2, [] {
    const tessera::Communicator comm = tessera::init().communicator();
    for (int trial = 0; trial < 5; ++trial) {
      const at::Tensor input = at::zeros({30000});
      const at::Tensor output = at::empty({60000});
      tessera::Work work = comm.all_gather_async(output, input);
      if (comm.rank() == 0) {
        float* data = input.mutable_data_ptr<float>();
        for (int64_t i = 0; i < input.numel(); ++i) {
          data[i] = static_cast<float>(i);
        }
      }
      work.wait();
    }
  });
  std::cout << "ran to the end\n";
  return 0;
}

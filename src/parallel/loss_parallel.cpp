#include <tessera/parallel/loss_parallel.h>

#include <tensor/loss_parallel.h>

namespace tessera {

LossParallel::LossParallel() : outer_(detail::set_loss_parallel(true)) {}

LossParallel::~LossParallel() {
  detail::set_loss_parallel(outer_);
}

}  // namespace tessera

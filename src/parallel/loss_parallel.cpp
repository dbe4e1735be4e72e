#include <tessera/parallel/loss_parallel.h>

#include <tensor/uses/cross_entropy.h>

namespace tessera {

LossParallel::LossParallel() : outer_(detail::set_loss_parallel(true)) {}

LossParallel::~LossParallel() {
  detail::set_loss_parallel(outer_);
}

}  // namespace tessera

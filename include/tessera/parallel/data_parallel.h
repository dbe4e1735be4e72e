// DataParallel: gradients of a module, summed over the ranks of a mesh dim once
// per step.
//
// Where a batch is cut along a mesh dim, every rank's gradient of a parameter
// that is whole in that dim is a partial value. By itself each one is summed up
// as it arrives: right, but one reduction per parameter and backward pass.
// Under DataParallel partial values stay partial values, backward passes add up
// locally, and the sums are taken in few large reductions, each begun as soon
// as the last of its gradients is there.
#pragma once

#include <memory>
#include <string>

#include <tessera/comm/device_mesh.h>
#include <tessera/export.h>

namespace torch::nn {
class Module;
}

namespace tessera {

struct DataParallelOptions {
  /// The mesh dim along which the batch is cut: by default "dp" where the mesh
  /// has a dim of that name, else its first one.
  std::string mesh_dim = {};
  /// About how many bytes are reduced at a time.
  int64_t bucket_bytes = int64_t{25} << 20;
};

/// Takes charge of the gradients of a module that is on a mesh, those of
/// parameters that are whole in the mesh dim. Gradients that stay from one step
/// to the next are sums already, and what is added to them is reduced at once:
/// zero_grad() sets them to nothing, which is its default. Example:
///   DataParallel parallel(*model, mesh);
///   loss_of(model(inputs)).backward();
///   parallel.reduce_gradients();
///   optimizer.step();
class TESSERA_API DataParallel {
 public:
  DataParallel(
      torch::nn::Module& module, const DeviceMesh& mesh,
      const DataParallelOptions& options = {});
  /// Gives the gradients back: they are summed up as they arrive again.
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// Sums up all gradients that backward passes left as partial values; every
  /// rank must call it, before anything else reads them. Reductions that began
  /// during the last backward pass are completed.
  void reduce_gradients();

  /// While it lives, backward passes add up and begin no reduction: the
  /// micro-batches of a step, all but the last.
  class Accumulate {
   public:
    explicit Accumulate(DataParallel& parallel);
    ~Accumulate();
    Accumulate(const Accumulate&) = delete;
    Accumulate& operator=(const Accumulate&) = delete;

   private:
    DataParallel& parallel_;
  };

  /// Returns the number of reductions that a step makes.
  int64_t bucket_count() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tessera

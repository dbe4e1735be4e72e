// Finds plain tensors that differ between ranks where they are taken for
// copies of one tensor.
//
// A plain tensor beside sharded ones is taken to be the same on all ranks:
// under an ImplicitReplication, as the input of a parallel module, as a tensor
// without dims, as the value of a parameter that is placed on a mesh. Where it
// is not, results are a mixture, and no call fails. This check compares.
#pragma once

#include <memory>

#include <tessera/export.h>

namespace tessera {

/// While it lives on this thread, plain tensors that enter a call with sharded
/// ones, and tensors that distribute_tensor(), make_dtensor_() and the
/// functions of modules place on a mesh, are compared over the ranks of the
/// mesh before the call. A difference is the same error on all of them, with
/// the call or the module, the tensor and the ranks. All ranks hold one, or
/// none. Equal tensors cost one gather of 24 bytes each; without a check
/// nothing is compared. TESSERA_CHECK_REPLICATION=1 in the environment does the
/// same for the whole program.
/// Example: ReplicationCheck check; model->forward(batch);
class TESSERA_API ReplicationCheck {
 public:
  ReplicationCheck();
  ~ReplicationCheck();
  ReplicationCheck(const ReplicationCheck&) = delete;
  ReplicationCheck& operator=(const ReplicationCheck&) = delete;

 private:
  std::shared_ptr<const void> outer_;
};

}  // namespace tessera

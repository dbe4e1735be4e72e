// Checks of plain tensors where they are taken for replicated ones; see
// tessera/tensor/replication_check.h.
#pragma once

#include <string>
#include <vector>

#include <tensor/call/op_call.h>

namespace tessera::detail::inline tensor_layer {

/// Tells whether this thread compares plain tensors.
bool checks_replication();

/// A plain tensor, and what an error calls it.
struct NamedPlain {
  std::string name;
  at::Tensor tensor;
};

/// Throws the same error on all ranks of the mesh where one of the tensors
/// differs; `call` opens it. Ranks outside of the mesh compare nothing. Every
/// rank of the mesh passes as many tensors in the same order.
void check_replication(
    const std::string& call, const std::vector<NamedPlain>& tensors,
    const DeviceMesh& mesh);

/// The same for the plain tensors of a call, whose other tensors are sharded.
/// Numbers that LibTorch has wrapped into tensors are no tensors of the user's.
void check_replication(const OpCall& call);

/// Throws where a user has mixed plain and sharded tensors, unless `may_mix` or
/// an ImplicitReplication allows it; where it is allowed, compares the plain
/// ones if the user asks for that. Every kernel that users' arguments enter
/// calls this once.
void check_plain(const OpCall& call, bool may_mix);

}  // namespace tessera::detail::inline tensor_layer

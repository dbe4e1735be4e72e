// Views that name memory: as_strided, and the question whether two tensors show
// the same.
//
// Note [Memory of sharded tensors]
// A sharded tensor says the sizes, strides and storage offset that a plain one
// would have, so as_strided() has a meaning: a window of the memory that the
// plain one, and every view of it, would lie in. That memory is shown by a copy
// of the tensor that is no view, its root. A window that is the tensor itself
// is a second tensor over the same shard, and nothing moves.
#pragma once

#include <tensor/call/op_call.h>

namespace tessera::detail::inline tensor_layer {

class MoveList;

/// as_strided(self, size, stride, storage_offset) on a rank of the mesh.
void as_strided_kernel(const OpCall& call);
/// as_strided_copy: the elements of the window in memory of their own.
void as_strided_copy_kernel(const OpCall& call);
void as_strided_moves(const OpCall& call, MoveList& list);
/// Both on a rank without data, and where nothing may be computed.
void as_strided_off_mesh(const OpCall& call);

/// Tells whether as_strided(...) asks for what its argument is already.
bool shows_itself(const OpCall& call);

/// is_set_to(self, tensor): the same memory, sizes, strides and offset.
void is_set_to_kernel(const OpCall& call);

}  // namespace tessera::detail::inline tensor_layer

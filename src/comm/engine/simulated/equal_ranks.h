// What a collective gives on one rank alone, when nobody else is there.
//
// Note [What the others hold]
// The others are taken to hold and to send what this rank does:
//   all_gather, gather      every run is this rank's input
//   all_reduce,             every partial value is this rank's: sum n x,
//   reduce_scatter          product x^n, avg, max and min x
//   all_to_all              from rank r comes what goes to rank r
//   broadcast               the tensor stays as it is
//   scatter, recv           zeros: this rank holds nothing like it
// each cut, or padded with zeros, to the count that the call says.
//   input 7 8, counts 2 3 1, rank 0    all_gather -> 7 8, 7 8 0, 7
// So results are those of a real world whose ranks hold equal data: what this
// rank holds itself is right, shapes are right, checks that ranks agree pass,
// and sums keep a size that programs can work with (no norm of 0 to divide by).
// Which groups split() makes depends on colors that only the others know, so it
// is refused.
#pragma once

#include <cstdint>

#include "comm/call/call.h"

namespace tessera::detail::inline comm_layer {

/// Fills the output of a call of the rank at `group_rank` of `size` ranks; not
/// for messages to itself.
void complete_alone(
    const CollectiveCall& call, int64_t group_rank, int64_t size);

}  // namespace tessera::detail::inline comm_layer

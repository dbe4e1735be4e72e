// What a rank tells the one that commits, as bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <io/model/entry.h>
#include <io/model/ticket.h>

namespace tessera::detail::inline io_layer {

/// What one rank has written.
struct RankRecords {
  std::string token;
  int64_t rank = 0;
  io::Contents contents;
};

std::string encode_records(const RankRecords& records);

/// Puts the contents of all ranks together: tensors in the order in which they
/// are first met, with the chunks of all ranks. Throws where a rank is missing
/// or belongs to another save, where ranks disagree about a tensor, where its
/// chunks do not cover it, where two have one value, and (kUsage) for bytes
/// that encode_records() did not make.
io::Contents merge_records(
    const io::SaveTicket& ticket, const std::vector<std::string>& records);

}  // namespace tessera::detail::inline io_layer

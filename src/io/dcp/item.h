// The items of DCP's data files: what torch.save writes of one tensor or value,
// a stored zip.
//
//   archive/data.pkl    a pickle: how to make the tensor of its storage, or the
//                       value
//   archive/data/0      the storage
//   archive/byteorder   "little"
//   archive/version     "3"
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <io/dcp/stored_zip.h>
#include <io/dcp/zip_layout.h>
#include <io/model/dtype.h>
#include <io/model/value.h>

namespace tessera::detail::inline io_layer {

/// A tensor as its item describes it.
struct TensorItem {
  io::Dtype dtype = io::Dtype::kFloat32;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  uint64_t first_element = 0;  // of the storage
  ZipRecord storage;
};

/// Reads the description of a tensor; the storage itself is not read.
TensorItem read_tensor_item(const StoredZip& zip);
io::Value read_value_item(const StoredZip& zip);

/// Describes the item of a row-major tensor, whose bytes come later.
ZipLayout make_tensor_item(io::Dtype dtype, const std::vector<int64_t>& sizes);
ZipLayout make_value_item(const io::Value& value);

}  // namespace tessera::detail::inline io_layer

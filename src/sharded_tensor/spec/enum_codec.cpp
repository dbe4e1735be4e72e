#include "sharded_tensor/spec/enum_codec.h"

#include "comm/call/call.h"

namespace tessera::sharded_tensor::format {

namespace {

std::string flag_name(uint8_t code) {
  return code != 0 ? "true" : "false";
}

std::string known_dtype_name(uint8_t code) {
  const auto dtype = static_cast<c10::ScalarType>(code);
  return dtype == c10::ScalarType::Undefined
             ? std::string()
             : tessera::detail::dtype_name(dtype);
}

std::string layout_name(uint8_t code) {
  switch (static_cast<c10::Layout>(code)) {
    case c10::Layout::Strided:
      return "strided";
    case c10::Layout::Sparse:
      return "sparse";
    case c10::Layout::SparseCsr:
      return "sparse_csr";
    case c10::Layout::Mkldnn:
      return "mkldnn";
    case c10::Layout::SparseCsc:
      return "sparse_csc";
    case c10::Layout::SparseBsr:
      return "sparse_bsr";
    case c10::Layout::SparseBsc:
      return "sparse_bsc";
    case c10::Layout::Jagged:
      return "jagged";
    case c10::Layout::NumOptions:
      break;
  }
  return {};
}

std::string memory_format_name(uint8_t code) {
  constexpr const char* kNames[] = {"contiguous", "channels_last", "preserve"};
  return kNames[code];
}

}  // namespace

const EnumCodec kFlags{2, flag_name};
const EnumCodec kDtypes{
    static_cast<uint8_t>(c10::ScalarType::NumOptions), known_dtype_name};
const EnumCodec kLayouts{
    static_cast<uint8_t>(c10::Layout::NumOptions), layout_name};
const EnumCodec kMemoryFormats{3, memory_format_name};

}  // namespace tessera::sharded_tensor::format

// What a pool makes and drops; it lies below what the parts are for.
#include <tensor/state/wrapper_pools.h>

#include <memory>
#include <string>

#include <tensor/impl/sharded_impl.h>
#include <tensor/impl/wrapper_error.h>

namespace tessera::detail::inline tensor_layer {

void* WrapperMemory::make() {
  return ::operator new(sizeof(ShardedImpl));
}
void WrapperMemory::drop(void* memory) {
  ::operator delete(memory);
}
void* MetaMemory::make() {
  return ::operator new(sizeof(ShardedMeta));
}
void MetaMemory::drop(void* memory) {
  ::operator delete(memory);
}
c10::ExtraMeta* ErrorTexts::make() {
  auto texts = std::make_unique<c10::ExtraMeta>();
  texts->custom_data_ptr_error_msg_ = data_pointer_error();
  texts->custom_storage_error_msg_ = data_pointer_error();
  return texts.release();
}
void ErrorTexts::drop(c10::ExtraMeta* texts) {
  delete texts;
}
WrapperPools::WrapperPools()
    : storage(
          c10::Storage::use_byte_size_t{}, 0,
          c10::DataPtr(nullptr, c10::Device(c10::kCPU))) {}

}  // namespace tessera::detail::inline tensor_layer

#include "sharded_tensor/spec/spec_registry.h"

#include <map>
#include <mutex>

#include <c10/util/Exception.h>

namespace tessera::sharded_tensor {

namespace format {

namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, SpecDecoder> decoders;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

}  // namespace

bool is_built_in(const std::string& name) {
  return name == kChunkName || name == kEnumerableName;
}

SpecDecoder find_spec_decoder(const std::string& name) {
  Registry& known = registry();
  const std::lock_guard<std::mutex> lock(known.mutex);
  const auto found = known.decoders.find(name);
  return found == known.decoders.end() ? SpecDecoder() : found->second;
}

}  // namespace format

void register_sharding_spec(
    const std::string& name,
    std::function<ShardingSpecPtr(const std::string&)> decode) {
  TORCH_CHECK_VALUE(
      !name.empty() && decode,
      "register_sharding_spec: a name and a decoder are needed; got the name '",
      name, "' and ", decode ? "a" : "no", " decoder");
  TORCH_CHECK_VALUE(
      !format::is_built_in(name), "register_sharding_spec: ", name,
      " is a spec of the library; return another name()");
  auto& known = format::registry();
  const std::lock_guard<std::mutex> lock(known.mutex);
  TORCH_CHECK_VALUE(
      known.decoders.emplace(name, std::move(decode)).second,
      "register_sharding_spec: ", name, " has a decoder already");
}

}  // namespace tessera::sharded_tensor

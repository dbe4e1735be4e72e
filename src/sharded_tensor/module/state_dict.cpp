// A state dict as bytes:  u64 tensors | per tensor: name, what save() writes
// inside a frame (codec.h).
#include <tessera/sharded_tensor/state_dict.h>

#include <functional>

#include <c10/util/Exception.h>
#include <modules/module_path.h>
#include <sharded_tensor/format/codec.h>
#include <sharded_tensor/module/tensor_members.h>
#include <sharded_tensor/spec/raise.h>
#include <tessera/comm/world.h>
#include <torch/nn/module.h>

namespace tessera::detail::inline sharded_tensor_layer {

using sharded_tensor::ShardedTensor;
using sharded_tensor::ShardedTensorHolder;
using torch::nn::Module;

void for_each_tensor_member(
    const Module& module, const std::string& prefix, bool recurse,
    const std::function<void(const std::string&, const ShardedTensorHolder&)>&
        f) {
  const auto visit = [&](const std::string& path, const Module& part) {
    if (const auto* holder = dynamic_cast<const ShardedTensorHolder*>(&part)) {
      f(join_path(prefix, path), *holder);
    }
  };
  visit("", module);
  if (recurse) {
    for (const auto& part :
         module.named_modules(/*name_prefix=*/"", /*include_self=*/false)) {
      visit(part.key(), *part.value());
    }
  }
}

const ShardedTensor* tensor_of(const ShardedTensorHolder::Member& member) {
  if (const auto* tensor = std::get_if<ShardedTensor*>(&member)) {
    return *tensor;
  }
  const auto& maybe = *std::get<std::optional<ShardedTensor>*>(member);
  return maybe ? &*maybe : nullptr;
}

}  // namespace tessera::detail::inline sharded_tensor_layer

namespace tessera::sharded_tensor {

using torch::nn::Module;

void ShardedTensorHolder::add(const std::string& name, Member member) {
  const bool is_name = !name.empty() && name.find('.') == std::string::npos;
  if (!is_name || !members_.emplace(name, member).second) {
    detail::raise<KeyError>(
        "register_sharded_tensor, rank ", rank(), ": '", name,
        is_name ? "' is registered already" : "' is no name: dots join paths");
  }
}

void ShardedTensorHolder::register_sharded_tensor(
    const std::string& name, ShardedTensor& member) {
  add(name, &member);
}

void ShardedTensorHolder::register_sharded_tensor(
    const std::string& name, std::optional<ShardedTensor>& member) {
  add(name, &member);
}

std::map<std::string, ShardedTensor> state_dict(
    const Module& module, const std::string& prefix) {
  std::map<std::string, ShardedTensor> dict;
  detail::for_each_tensor_member(
      module, prefix, /*recurse=*/true,
      [&](const std::string& path, const ShardedTensorHolder& holder) {
        for (const auto& [name, member] : holder.sharded_tensors()) {
          if (const ShardedTensor* tensor = detail::tensor_of(member)) {
            dict.emplace(detail::join_path(path, name), *tensor);
          }
        }
      });
  return dict;
}

std::vector<std::string> load_state_dict(
    Module& module, const std::map<std::string, ShardedTensor>& from,
    const std::string& prefix) {
  std::map<std::string, ShardedTensor> left = from;
  detail::for_each_tensor_member(
      module, prefix, /*recurse=*/true,
      [&](const std::string& path, const ShardedTensorHolder& holder) {
        for (const auto& [name, member] : holder.sharded_tensors()) {
          const auto found = from.find(detail::join_path(path, name));
          if (found != from.end()) {
            std::visit([&](auto* slot) { *slot = found->second; }, member);
            left.erase(found->first);
          }
        }
      });
  std::vector<std::string> unknown;
  for (const auto& [path, tensor] : left) {
    unknown.push_back(path);
  }
  return unknown;
}

std::string save_state_dict(const std::map<std::string, ShardedTensor>& dict) {
  format::Writer out;
  out.u64(dict.size());
  for (const auto& [path, tensor] : dict) {
    out.string(path);
    out.string(save(tensor));
  }
  return format::frame(format::Kind::kStateDict, out.bytes());
}

std::map<std::string, ShardedTensor> restore_state_dict(
    std::string_view bytes) {
  format::Reader in(
      format::unframe(format::Kind::kStateDict, bytes), "state dict");
  const size_t count = in.count(16);  // of at least two lengths each
  std::map<std::string, ShardedTensor> dict;
  for (size_t i = 0; i < count; ++i) {
    const std::string path = in.string();
    const std::string_view tensor = in.view(in.count(1));
    if (dict.contains(path)) {
      in.fail("a name occurs twice");
    }
    dict.emplace(path, restore(tensor));
  }
  in.finish();
  return dict;
}

}  // namespace tessera::sharded_tensor

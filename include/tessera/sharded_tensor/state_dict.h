// Sharded tensors among the members of modules, by name.
//
// C++ cannot list the members of a class, so a module says which of them are
// sharded tensors. Sharded parameters need none of this: they are parameters.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/export.h>
#include <tessera/sharded_tensor/sharded_tensor.h>

namespace torch::nn {
class Module;
}

namespace tessera::sharded_tensor {

/// A base for modules with sharded tensors among their members. Example:
///   struct Table : torch::nn::Module, ShardedTensorHolder {
///     Table() { register_sharded_tensor("rows", rows); }
///     std::optional<ShardedTensor> rows;
///   };
class TESSERA_API ShardedTensorHolder {
 public:
  /// A member that may be registered.
  using Member = std::variant<ShardedTensor*, std::optional<ShardedTensor>*>;

  ShardedTensorHolder() = default;
  virtual ~ShardedTensorHolder() = default;
  // Members are known by address, so a copy registers its own: in reset(), as
  // torch::nn::Cloneable wants it for parameters.
  ShardedTensorHolder(const ShardedTensorHolder&) {}
  ShardedTensorHolder& operator=(const ShardedTensorHolder&) { return *this; }

  /// Returns what is registered, by name.
  const std::map<std::string, Member>& sharded_tensors() const {
    return members_;
  }

 protected:
  /// Names a member of this object. A name with a dot, or one that is taken, is
  /// a KeyError.
  void register_sharded_tensor(const std::string& name, ShardedTensor& member);
  /// The same for one that may be empty still.
  void register_sharded_tensor(
      const std::string& name, std::optional<ShardedTensor>& member);

 private:
  void add(const std::string& name, Member member);
  std::map<std::string, Member> members_;
};

/// Returns the sharded tensors of a module and the modules below it, the
/// objects themselves, by path: "prefix.encoder.rows". Empty members are left
/// out; modules without any have none.
TESSERA_API std::map<std::string, ShardedTensor> state_dict(
    const torch::nn::Module& module, const std::string& prefix = "");
/// Assigns to each registered member, empty or not, the tensor of its path.
/// Returns the paths that no member has.
TESSERA_API std::vector<std::string> load_state_dict(
    torch::nn::Module& module, const std::map<std::string, ShardedTensor>& from,
    const std::string& prefix = "");

/// Writes this rank's parts, by save().
TESSERA_API std::string save_state_dict(
    const std::map<std::string, ShardedTensor>& dict);
/// Reads them on the same rank of a group of the same size, by restore().
TESSERA_API std::map<std::string, ShardedTensor> restore_state_dict(
    std::string_view bytes);

}  // namespace tessera::sharded_tensor

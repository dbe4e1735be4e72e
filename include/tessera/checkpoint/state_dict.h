// What a checkpoint keeps: names, and for each a tensor, a number, a text,
// bytes, or names and lists of such.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/export.h>
#include <tessera/sharded_tensor/sharded_tensor.h>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace tessera::checkpoint {

class StateDict;
struct Entry;

/// Bytes that are no text.
struct Bytes {
  std::string data;
  friend bool operator==(const Bytes&, const Bytes&) = default;
};

/// One value of a StateDict. Tensors are handles: load() writes into them.
class TESSERA_API StateValue {
 public:
  enum class Kind : uint8_t {
    kNone,
    kBool,
    kInteger,
    kFloat,
    kString,
    kBytes,
    kTensor,
    kShardedTensor,
    kList,
    kDict,
  };
  using List = std::vector<StateValue>;

  StateValue() = default;
  StateValue(std::same_as<bool> auto value) : value_(value) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) StateValue(T value)
      : value_(static_cast<int64_t>(value)) {}
  StateValue(std::floating_point auto value)
      : value_(static_cast<double>(value)) {}
  StateValue(std::convertible_to<std::string_view> auto const& text)
      : value_(std::string(std::string_view(text))) {}
  StateValue(Bytes bytes) : value_(std::move(bytes)) {}
  StateValue(at::Tensor tensor) : value_(std::move(tensor)) {}
  StateValue(sharded_tensor::ShardedTensor tensor)
      : value_(std::move(tensor)) {}
  StateValue(List list) : value_(std::move(list)) {}
  StateValue(StateDict dict);
  /// A list that Python loads as a tuple. Example: StateValue::tuple({0.9,
  /// 0.99}).
  static StateValue tuple(List list);

  Kind kind() const { return static_cast<Kind>(value_.index()); }

  /// Each throws a TypeError that names what there is where the value is of
  /// another kind.
  bool to_bool() const;
  int64_t to_int() const;
  /// An integer too.
  double to_double() const;
  const std::string& to_string() const;
  const std::string& to_bytes() const;
  const at::Tensor& to_tensor() const;
  const sharded_tensor::ShardedTensor& to_sharded_tensor() const;
  const List& to_list() const;
  List& to_list();
  const StateDict& to_dict() const;
  StateDict& to_dict();
  bool is_tuple() const { return is_tuple_; }

  /// Returns it with a function that load() calls when it has read a new value:
  /// how what was read reaches an object that is no StateDict.
  StateValue on_load(std::function<void(const StateValue&)> receive) const;
  /// Returns it as something that does not exist yet: save() leaves it out, and
  /// load() fills it where the checkpoint has it. Values of one `group` are all
  /// in the checkpoint, or none is.
  StateValue absent(std::shared_ptr<const void> group) const;
  /// Null where the value exists.
  const void* absent_group() const { return absent_.get(); }

  /// Returns it as something whose names only the checkpoint knows, such as a
  /// list that grew: load() calls `make` with the entries of its name and below
  /// it, where there are some, and fills what that returns in its place. Their
  /// names are what follows: of "a.b" and "a.b.0", "" and "0". Example:
  ///   StateValue(list).on_open([](const std::vector<Entry>& entries) {
  ///     return StateValue::List(entries.size()); });
  StateValue on_open(
      std::function<StateValue(const std::vector<Entry>&)> make) const;
  bool has_on_open() const { return static_cast<bool>(make_); }
  /// Returns what the function of on_open() makes; what on_load() was given
  /// here is called for it.
  StateValue open(const std::vector<Entry>& entries) const;

  /// Takes what load() has read, and calls the function of on_load().
  void receive(StateValue value);

 private:
  template <class T>
  const T& get(Kind wanted) const;

  std::variant<
      std::monostate, bool, int64_t, double, std::string, Bytes, at::Tensor,
      sharded_tensor::ShardedTensor, List, std::shared_ptr<StateDict>>
      value_;
  bool is_tuple_ = false;
  std::function<void(const StateValue&)> receive_;
  std::function<StateValue(const std::vector<Entry>&)> make_;
  std::shared_ptr<const void> absent_;
};

/// Names and values in the order in which they were added. A handle where it is
/// nested: copies of a dict share the dicts inside it. Example:
///   StateDict state{{"model", state_dict(*model)}, {"step", 100}};
class TESSERA_API StateDict {
 public:
  using Item = std::pair<std::string, StateValue>;

  StateDict() = default;
  StateDict(std::initializer_list<Item> items);

  /// Adds a value, or replaces the one that has this name.
  void set(const std::string& name, StateValue value);
  /// Returns the value of a name, which is added where it is not there.
  StateValue& operator[](const std::string& name);
  /// Returns the value of a name, or throws an IndexError that lists the names
  /// that there are.
  const StateValue& at(const std::string& name) const;
  bool contains(const std::string& name) const;

  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }

 private:
  const Item* find(const std::string& name) const;
  std::vector<Item> items_;
};

/// Returns "a tensor", "an integer", ...
TESSERA_API std::string_view describe(StateValue::Kind kind);

/// Returns the parameters and buffers of a module by path, as Python's
/// state_dict(), and the sharded tensors that its modules have registered. The
/// tensors are the module's own.
TESSERA_API StateDict state_dict(const torch::nn::Module& module);

/// Returns the state of a module and its optimizer:
///   model                          as state_dict(module)
///   optimizer.state.PATH.exp_avg   tensors and numbers of each parameter
///   optimizer.param_groups.0.lr    options, and the paths of its parameters
/// State that a new optimizer does not have yet is absent: save() leaves it
/// out, load() makes it. What load() reads reaches the optimizer, which must
/// live until then. All optimizers of torch::optim.
TESSERA_API StateDict
state_dict(const torch::nn::Module& module, torch::optim::Optimizer& optimizer);

/// Returns a state with every tensor whole, as a plain one on the CPU, on one
/// rank of the world; an empty dict on all others, which never hold more than
/// their shards: for a file that other programs read. Plain tensors and values
/// are those of that rank. Collective over the world: all ranks pass the same
/// names and layouts. Example:
///   auto whole = full_state_dict(state_dict(*model));
///   if (rank() == 0) { torch::save(whole.at("w").to_tensor(), "w.pt"); }
TESSERA_API StateDict full_state_dict(const StateDict& state, int64_t rank = 0);

/// Returns this rank's random state (seed, draws, streams), which load() sets:
/// the program draws on as if it had not stopped.
TESSERA_API StateDict random_state_dict();

}  // namespace tessera::checkpoint

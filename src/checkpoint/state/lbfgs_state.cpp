#include <checkpoint/state/lbfgs_state.h>

#include <map>
#include <memory>
#include <utility>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/tensor/dtensor.h>
#include <tessera/tensor/factories.h>
#include <torch/optim/lbfgs.h>

namespace tessera::detail::inline checkpoint_layer {

using checkpoint::Entry;
using checkpoint::StateDict;
using checkpoint::StateValue;
using State = torch::optim::LBFGSParamState;

namespace {

template <class Tensors>
StateValue list_of(const Tensors& tensors) {
  StateValue::List list;
  for (const at::Tensor& t : tensors) {
    list.push_back(t.defined() ? StateValue(t) : StateValue());
  }
  return list;
}

StateDict saved_state(State& s) {
  StateDict dict{{"func_evals", s.func_evals()}, {"n_iter", s.n_iter()}};
  if (s.d().defined()) {
    dict.set("d", s.d());
    dict.set("t", s.t());
    dict.set("old_dirs", list_of(s.old_dirs()));
    dict.set("old_stps", list_of(s.old_stps()));
    dict.set("ro", list_of(s.ro()));
    dict.set("H_diag", s.H_diag());
    dict.set("prev_flat_grad", s.prev_flat_grad());
    dict.set("prev_loss", s.prev_loss());
    if (s.al()) {
      dict.set("al", list_of(*s.al()));
    }
  }
  return dict;
}

// Makes a state of the entries of a checkpoint. It becomes the optimizer's as
// soon as something of it was read.
class Making {
 public:
  Making(torch::optim::Optimizer& optimizer, at::Tensor first)
      : optimizer_(&optimizer),
        first_(std::move(first)),
        holder_(std::make_shared<std::unique_ptr<State>>(
            std::make_unique<State>())),
        state_(holder_->get()) {}

  StateValue run(const std::vector<Entry>& entries) {
    std::map<std::string, std::vector<const Entry*>> fields;
    for (const Entry& entry : entries) {
      fields[entry.name.substr(0, entry.name.find('.'))].push_back(&entry);
    }
    StateDict dict;
    for (const auto& [name, its] : fields) {
      if (const auto value = field(name, its)) {
        dict.set(name, *value);
      }
    }
    return dict;
  }

 private:
  using Entries = std::vector<const Entry*>;

  // Nothing for a field that is not known: then load() says so.
  std::optional<StateValue> field(
      const std::string& name, const Entries& entries) {
    State& s = *state_;
    if (name == "func_evals") {
      return number(s.func_evals(), &StateValue::to_int);
    }
    if (name == "n_iter") {
      return number(s.n_iter(), &StateValue::to_int);
    }
    if (name == "t") {
      return number(s.t(), &StateValue::to_double);
    }
    if (name == "prev_loss") {
      return number(s.prev_loss(), &StateValue::to_double);
    }
    if (name == "d") {
      return tensor(*entries[0], s.d());
    }
    if (name == "H_diag") {
      return tensor(*entries[0], s.H_diag());
    }
    if (name == "prev_flat_grad") {
      return tensor(*entries[0], s.prev_flat_grad());
    }
    if (name == "old_dirs") {
      return list(entries, s.old_dirs());
    }
    if (name == "old_stps") {
      return list(entries, s.old_stps());
    }
    if (name == "ro") {
      return list(entries, s.ro());
    }
    if (name == "al") {
      return list(entries, s.al().emplace());
    }
    return std::nullopt;
  }

  template <class T>
  StateValue number(T& target, T (StateValue::*read)() const) const {
    return StateValue(T()).on_load(
        [&target, read, *this](const StateValue& value) {
          target = (value.*read)();
          hand_over();
        });
  }

  // Python's first H_diag is the number 1.
  StateValue tensor(const Entry& entry, at::Tensor& target) const {
    if (!entry.dtype) {
      return StateValue().on_load([&target, *this](const StateValue& value) {
        target = make({}, first_.scalar_type()).fill_(value.to_double());
        hand_over();
      });
    }
    target = make(entry.shape, *entry.dtype);
    return StateValue(target).on_load(
        [*this](const StateValue&) { hand_over(); });
  }

  // A list of no tensors is one entry; in others, what is no tensor is none.
  template <class Tensors>
  StateValue list(const Entries& entries, Tensors& target) const {
    if (entries[0]->name.find('.') == std::string::npos) {
      return StateValue().on_load([&target, *this](const StateValue& value) {
        target.resize(value.to_list().size());
        hand_over();
      });
    }
    target.resize(entries.size());
    StateValue::List items(entries.size());
    std::map<std::string, const Entry*> by_name;
    for (const Entry* entry : entries) {
      by_name[entry->name.substr(entry->name.find('.') + 1)] = entry;
    }
    for (size_t i = 0; i < items.size(); ++i) {
      const auto found = by_name.find(std::to_string(i));
      if (found != by_name.end() && found->second->dtype) {
        items[i] = tensor(*found->second, target[i]);
      }
    }
    return items;
  }

  // What is as long as all parameters together has no layout of its own: each
  // rank of the mesh has it.
  at::Tensor make(
      const std::vector<int64_t>& shape, c10::ScalarType dtype) const {
    const auto options = first_.options().dtype(dtype).requires_grad(false);
    if (!is_dtensor(first_)) {
      return at::zeros(shape, options);
    }
    const DeviceMesh& mesh = device_mesh(first_);
    return zeros(
        shape, mesh, Placements(static_cast<size_t>(mesh.ndim()), Replicate()),
        at::TensorOptions().dtype(dtype));
  }

  void hand_over() const {
    if (*holder_) {
      optimizer_->state()[first_.unsafeGetTensorImpl()] = std::move(*holder_);
    }
  }

  torch::optim::Optimizer* optimizer_;
  at::Tensor first_;
  std::shared_ptr<std::unique_ptr<State>> holder_;
  State* state_;  // the holder's, and then the optimizer's
};

}  // namespace

StateValue lbfgs_state(
    torch::optim::Optimizer& optimizer, const at::Tensor& first) {
  const auto make = [&optimizer, first](const std::vector<Entry>& entries) {
    return Making(optimizer, first).run(entries);
  };
  const auto kept = optimizer.state().find(first.unsafeGetTensorImpl());
  if (kept == optimizer.state().end()) {
    return StateValue(StateDict())
        .absent(std::make_shared<int>())
        .on_open(make);
  }
  auto* state = dynamic_cast<State*>(kept->second.get());
  TORCH_INTERNAL_ASSERT(state != nullptr, "LBFGS keeps an LBFGSParamState");
  return StateValue(saved_state(*state)).on_open(make);
}

}  // namespace tessera::detail::inline checkpoint_layer

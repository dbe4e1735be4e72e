// Registers our kernels with LibTorch's dispatcher.
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <tensor/call/op_traits.h>
#include <tensor/dispatch/kernels.h>
#include <tensor/fast/typed_kernel.h>
#include <tensor/random/ops/unsharded_random.h>
#include <tensor/state/dispatch_keys.h>
#include <tensor/state/late_operators.h>
#include <tensor/uses/parameter_use.h>
#include <torch/library.h>

namespace tessera::detail::inline tensor_layer {

namespace {

using c10::DispatchKey;
using c10::OperatorHandle;

// Note [Which operators need a kernel of their own]
// A backend fallback serves operators without any kernel for our key. Those
// with a CompositeExplicitAutograd(NonFunctional) kernel would take that one
// instead, and those with a CompositeImplicitAutograd kernel would decompose
// without raising the depth; each of these gets an explicit kernel. Operators
// defined after us (custom ops, other libraries) are queued by a listener,
// which runs under the dispatcher's lock, and registered at the next entry.
class Registry {
 public:
  static Registry& instance() {
    static auto* registry = new Registry();  // lives as long as the dispatcher
    return *registry;
  }

  void queue(const c10::OperatorName& name) {
    std::lock_guard<std::mutex> lock(mutex_);
    late_.push_back(name);
    has_late_operators.store(true, std::memory_order_release);
  }

  void add_late() {
    std::lock_guard<std::mutex> adding(adding_);
    for (auto names = take_late(); !names.empty(); names = take_late()) {
      for (const auto& name : names) {
        if (auto op = c10::Dispatcher::singleton().findSchema(name)) {
          add_operator(*op);
        }
      }
    }
  }

 private:
  struct Listener final : c10::OpRegistrationListener {
    explicit Listener(Registry& to) : registry(to) {}
    void onOperatorRegistered(const OperatorHandle& op) override {
      registry.queue(op.operator_name());
    }
    void onOperatorDeregistered(const OperatorHandle&) override {
      forget_traits();
    }
    Registry& registry;
  };

  struct ByName {
    using Entry = std::pair<c10::OperatorName, DispatchKey>;
    bool operator()(const Entry& a, const Entry& b) const {
      return std::tie(a.first.name, a.first.overload_name, a.second) <
             std::tie(b.first.name, b.first.overload_name, b.second);
    }
  };

  Registry() {
    using c10::KernelFunction;
    auto& dispatcher = c10::Dispatcher::singleton();
    handles_.push_back(dispatcher.registerFallback(
        kShardedKey, KernelFunction::makeFromBoxedFunction<&backend_kernel>(),
        "tessera"));
    handles_.push_back(dispatcher.registerFallback(
        kShardedAutogradKey,
        KernelFunction::makeFromBoxedFunction<&autograd_fallback>(),
        "tessera"));
    aten_ = std::make_unique<torch::Library>(
        torch::Library::IMPL, "aten", kShardedKey, __FILE__, __LINE__);
    aten_->impl("_has_compatible_shallow_copy_type", shallow_copy_kernel);
    for (const auto& name : dispatcher.getAllOpNames()) {
      if (auto op = dispatcher.findOp(name)) {
        add_operator(*op);
      }
    }
    handles_.push_back(dispatcher.registerImpl(
        {"aten::as_strided", ""}, kShardedAutogradKey,
        KernelFunction::makeFromBoxedFunction<&as_strided_autograd>(),
        std::nullopt, nullptr, "tessera"));
    register_unsharded_random();
    register_use_kernels(handles_);
    // The dispatcher replays all known operators to a new listener.
    handles_.push_back(
        dispatcher.addRegistrationListener(std::make_unique<Listener>(*this)));
    has_scanned_ = true;
  }

  void add_operator(const OperatorHandle& op) {
    using c10::BoxedKernel;
    const c10::OperatorName& name = op.operator_name();
    if (!op.hasSchema() ||
        name.name == "aten::_has_compatible_shallow_copy_type") {
      return;
    }
    if (op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd)) {
      const auto boxed = BoxedKernel::makeFromFunction<&composite_kernel>();
      const OpEntry* entry = op_registry().find(name);
      const bool is_ours = entry != nullptr && entry->composite != nullptr;
      for (const DispatchKey key : {kShardedKey, kShardedAutogradKey}) {
        add(name, key,
            may_be_typed() && !is_ours ? typed_composite(op, boxed)
                                       : std::nullopt,
            boxed);
      }
      return;
    }
    const auto boxed = BoxedKernel::makeFromFunction<&backend_kernel>();
    auto typed = may_be_typed() ? typed_kernel(op, boxed) : std::nullopt;
    if (typed ||
        op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
        op.hasKernelForDispatchKey(
            DispatchKey::CompositeExplicitAutogradNonFunctional)) {
      add(name, kShardedKey, std::move(typed), boxed);
    }
  }

  // Operators that were there before us are LibTorch's, or stay as they are;
  // a late one may be removed and defined again with another signature.
  bool may_be_typed() const { return !has_scanned_; }

  // Returns the queue; an empty one means that no operator is late any more.
  std::vector<c10::OperatorName> take_late() {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<c10::OperatorName> names;
    names.swap(late_);
    if (names.empty()) {
      has_late_operators.store(false, std::memory_order_release);
    }
    return names;
  }

  void add(
      const c10::OperatorName& name, DispatchKey key,
      std::optional<c10::KernelFunction> typed, c10::BoxedKernel boxed) {
    if (!added_.emplace(name, key).second) {
      return;  // defined, removed and defined again
    }
    handles_.push_back(c10::Dispatcher::singleton().registerImpl(
        name, key,
        typed ? *std::move(typed)
              : c10::KernelFunction::makeFromBoxedKernel(std::move(boxed)),
        std::nullopt, nullptr, "tessera"));
  }

  std::mutex adding_;  // taken before the dispatcher's lock
  std::mutex mutex_;   // guards the queue; taken under the dispatcher's lock
  std::set<std::pair<c10::OperatorName, DispatchKey>, ByName> added_;
  std::vector<c10::OperatorName> late_;
  bool has_scanned_ = false;
  std::vector<c10::RegistrationHandleRAII> handles_;
  std::unique_ptr<torch::Library> aten_;
};

}  // namespace

void register_late_operators() {
  Registry::instance().add_late();
}

}  // namespace tessera::detail::inline tensor_layer

#include <parallel/recompute/packer_scope.h>

#include <atomic>
#include <mutex>
#include <utility>

#include <c10/util/Exception.h>
#include <tessera/comm/world.h>
#include <torch/csrc/autograd/engine.h>

namespace tessera {

namespace {

using torch::autograd::Engine;
using torch::autograd::SavedVariableHooks;

std::atomic<InstallPacker> install_packer = nullptr;

// Of the innermost scope on this thread.
thread_local std::shared_ptr<TensorPacker> current_packer;

class PackerHooks final : public SavedVariableHooks {
 public:
  explicit PackerHooks(std::shared_ptr<TensorPacker> packer)
      : packer_(std::move(packer)) {}
  void call_pack_hook(const at::Tensor& tensor) override {
    packed_ = packer_->pack(tensor);
    packer_.reset();
  }
  at::Tensor call_unpack_hook() override { return packed_->unpack(); }

 private:
  std::shared_ptr<TensorPacker> packer_;
  std::shared_ptr<PackedTensor> packed_;
};

class PackingEngine final : public Engine {
 public:
  static Engine& instance() {
    static PackingEngine engine;
    return engine;
  }
  ~PackingEngine() override { stop(); }
  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks()
      override {
    return current_packer ? std::make_unique<PackerHooks>(current_packer)
                          : nullptr;
  }
};

bool is_installed() {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (&Engine::get_default_engine() == &Engine::get_base_engine()) {
    torch::autograd::set_default_engine_stub(&PackingEngine::instance);
  }
  return &Engine::get_default_engine() == &PackingEngine::instance();
}

}  // namespace

void set_install_packer(InstallPacker install) {
  install_packer = install;
}

namespace detail::inline parallel_layer {

PackerScope::PackerScope(std::shared_ptr<TensorPacker> packer) {
  if (const InstallPacker install = install_packer.load()) {
    hosts_ = install(std::move(packer));
    return;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      is_installed(), "activation_checkpoint, rank ", rank(),
      ": this process has an autograd engine that is not LibTorch's, so that "
      "what autograd saves cannot be asked for; in Python, import tessera; "
      "elsewhere call set_install_packer()");
  outer_ = std::exchange(current_packer, std::move(packer));
}

PackerScope::~PackerScope() {
  if (!hosts_) {
    current_packer = std::move(outer_);
  }
}

}  // namespace detail::inline parallel_layer
}  // namespace tessera

// Ema: averages of a module's parameters over the steps of its training.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/export.h>

namespace torch::nn {
class Module;
}

namespace tessera {

/// Keeps the exponential moving averages of a module's parameters, in their
/// layouts: each rank averages its shards, nothing is communicated. Make it
/// when the parameters are where they stay. Example:
///   Ema ema(*model, 0.999);
///   for (...) { train_step(); ema.update(); }
///   const Ema::Swap averaged(ema);  // the model holds the averages
///   evaluate(*model);
class TESSERA_API Ema {
 public:
  /// Averages begin as the parameters are; `dtype` at least.
  explicit Ema(
      const torch::nn::Module& module, double decay = 0.999,
      c10::ScalarType dtype = at::kFloat);
  ~Ema();
  Ema(const Ema&) = delete;
  Ema& operator=(const Ema&) = delete;

  /// Makes each average decay * average + (1 - decay) * parameter.
  void update();
  /// Returns the averages by the names of the parameters, to be saved, or
  /// loaded in place.
  std::vector<std::pair<std::string, at::Tensor>> averages() const;

  /// While it lives, the module's parameters hold the averages; then they have
  /// their own values again, bit for bit.
  class Swap {
   public:
    explicit Swap(Ema& ema);
    ~Swap();
    Swap(const Swap&) = delete;
    Swap& operator=(const Swap&) = delete;

   private:
    Ema& ema_;
    std::vector<at::Tensor> own_;
  };

 private:
  struct Average {
    std::string name;
    at::Tensor parameter;
    at::Tensor value;
  };
  void check_layouts(const char* call) const;

  std::vector<Average> averages_;
  double decay_;
  bool is_swapped_ = false;
};

}  // namespace tessera

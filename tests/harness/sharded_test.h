// What tests of sharded tensors share: the device under test, data with a
// distinct value per element, and comparisons with plain tensors.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include <tessera/tessera.h>

namespace tessera::testing {

/// Returns the device of the tests: cpu, or what TESSERA_TEST_DEVICE says.
inline c10::DeviceType device() {
  const char* name = std::getenv("TESSERA_TEST_DEVICE");
  return name != nullptr && std::string(name) == "cuda" ? at::kCUDA : at::kCPU;
}

inline at::TensorOptions f64() {
  return at::TensorOptions(at::kDouble).device(device());
}
inline at::TensorOptions f32() {
  return at::TensorOptions(at::kFloat).device(device());
}
inline at::TensorOptions i64() {
  return at::TensorOptions(at::kLong).device(device());
}

inline DeviceMesh mesh_of(
    const std::vector<int64_t>& shape, std::vector<std::string> names = {}) {
  return init_device_mesh(device(), shape, std::move(names));
}

/// Returns distinct, irregular values: the same on every rank, no generator.
inline at::Tensor distinct(
    at::IntArrayRef shape, at::TensorOptions options = f64()) {
  const int64_t n = c10::multiply_integers(shape);
  return at::arange(n, at::TensorOptions(at::kDouble))
      .mul(0.7390851332151607)
      .add(0.37)
      .sin()
      .add(at::arange(n, at::TensorOptions(at::kDouble)).mul(0.01))
      .reshape(shape)
      .to(options)
      .clone();
}

/// Returns 0, 1, 2, ... in the given shape.
inline at::Tensor counting(
    at::IntArrayRef shape, at::TensorOptions options = f64()) {
  return at::arange(c10::multiply_integers(shape), options)
      .reshape(shape)
      .clone();
}

/// Returns the plain value of a tensor, sharded or not.
inline at::Tensor plain(const at::Tensor& t) {
  return is_dtensor(t) ? full_tensor(t.detach()) : t.detach();
}

inline ::testing::AssertionResult same(
    const at::Tensor& got, const at::Tensor& want) {
  const at::Tensor a = plain(got);
  const at::Tensor b = plain(want);
  if (a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
      at::equal(a, b)) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "rank " << rank() << ": got\n"
                                       << a << "\nwant\n"
                                       << b;
}

inline ::testing::AssertionResult close(
    const at::Tensor& got, const at::Tensor& want, double tolerance = 1e-10) {
  const at::Tensor a = plain(got);
  const at::Tensor b = plain(want);
  if (a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
      at::allclose(a, b, tolerance, tolerance, /*equal_nan=*/true)) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "rank " << rank() << ": got\n"
                                       << a << "\nwant\n"
                                       << b;
}

/// Returns the text as it would be on the CPU: meshes of another device type
/// say so.
inline std::string as_on_cpu(std::string text) {
  const std::string word =
      ") " + std::string(c10::DeviceTypeName(device(), true));
  for (size_t at = text.find(word); at != std::string::npos;
       at = text.find(word, at)) {
    text.erase(at + 1, word.size() - 1);
  }
  return text;
}

/// Returns the text of the error that `body` throws, as_on_cpu(); "" when it
/// throws none.
template <class F>
std::string error_of(F body) {
  try {
    body();
  } catch (const c10::Error& e) {
    return as_on_cpu(e.what_without_backtrace());
  } catch (const std::exception& e) {
    return as_on_cpu(e.what());
  }
  return "";
}

/// Runs `body` on one rank at a time. For LibTorch's archives, whose type
/// objects the thread sanitizer cannot follow.
template <class F>
void one_at_a_time(F body) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  body();
}

}  // namespace tessera::testing

#define EXPECT_ERROR(text, ...)     \
  EXPECT_PRED_FORMAT2(              \
      ::testing::IsSubstring, text, \
      ::tessera::testing::error_of([&] { static_cast<void>(__VA_ARGS__); }))

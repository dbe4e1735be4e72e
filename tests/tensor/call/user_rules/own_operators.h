// Operators as a user would define them (own_operators.cpp has their kernels),
// and how tests call them, change their rules and check what becomes of them.
#pragma once

#include <functional>
#include <string>

#include <tensor/cut.h>
#include <tessera/rules/rule_table.h>

namespace tessera::testing {

/// Returns the name that the dispatcher knows an operator by.
inline std::string full_name(const std::string& name) {
  return "rule_user_test::" + name;
}

/// Calls an operator by its short name: "scale", "scale.out".
template <class Signature, class... Arguments>
auto call(const std::string& name, Arguments&&... arguments) {
  const size_t dot = name.find('.');
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(
          full_name(name.substr(0, dot)).c_str(),
          dot == std::string::npos ? "" : name.substr(dot + 1).c_str())
      .typed<Signature>()
      .call(std::forward<Arguments>(arguments)...);
}

inline at::Tensor scale_of(const at::Tensor& x, double by) {
  return call<at::Tensor(const at::Tensor&, double)>("scale", x, by);
}
inline at::Tensor product_of(const at::Tensor& a, const at::Tensor& b) {
  return call<at::Tensor(const at::Tensor&, const at::Tensor&)>(
      "product", a, b);
}
inline at::Tensor total_of(
    const at::Tensor& x, at::IntArrayRef dim, bool keepdim = false) {
  return call<at::Tensor(const at::Tensor&, at::IntArrayRef, bool)>(
      "total", x, dim, keepdim);
}
inline at::Tensor centered_of(const at::Tensor& x, int64_t dim) {
  return call<at::Tensor(const at::Tensor&, int64_t)>("centered", x, dim);
}
inline at::Tensor apply(const std::string& name, const at::Tensor& x) {
  return call<at::Tensor(const at::Tensor&)>(name, x);
}
inline at::Tensor pick_of(const at::Tensor& table, const at::Tensor& index) {
  return call<at::Tensor(const at::Tensor&, const at::Tensor&)>(
      "pick", table, index);
}

/// Changes the table on one rank, while the others wait: it is that of the
/// process.
inline void change_rules(const std::function<void()>& change) {
  init().communicator().barrier();
  if (rank() == 0) {
    change();
  }
  init().communicator().barrier();
}

inline void remove_rule(const std::string& name) {
  change_rules([&] { rules().remove(full_name(name)); });
}

/// Checks value and placements of a result that no communication may make.
template <class F>
void expect_local(F body, const at::Tensor& want, const std::string& where) {
  const StrictMode strict({.communication = true, .fallbacks = true});
  at::Tensor got;
  EXPECT_EQ(error_of([&] { got = body(); }), "");
  const StrictMode gap({.communication = false});
  if (got.defined()) {
    EXPECT_TRUE(close(got, want));
    EXPECT_EQ(to_string(placements(got)), where);
  }
}

/// Checks the value of a result that is made of whole values for want of a
/// rule.
template <class F>
void expect_fallback(F body, const at::Tensor& want) {
  {
    const StrictMode strict({.communication = false, .fallbacks = true});
    EXPECT_ERROR("no sharding rule", body());
  }
  const at::Tensor got = body();
  EXPECT_TRUE(close(got, want));
  EXPECT_EQ(to_string(placements(got)), "R");
}

}  // namespace tessera::testing

// list_operators(): how each operator of this process runs on sharded tensors.
// What one call would do is explain()'s to say.
#pragma once

#include <string>
#include <vector>

#include <tessera/export.h>

namespace tessera {

/// How an operator runs on sharded tensors.
struct OperatorInfo {
  /// "aten::add_.Tensor".
  std::string name;
  /// The form of the rule that serves it, as in RuleInfo; or "kernel" (one of
  /// the library's own), "random" (drawn by the library), "composite" (ATen
  /// makes it of other operators), "decomposed" (the library does), "whole" (no
  /// dim of it can be cut), "fallback" (nothing is known of it: whole values).
  std::string form;
  /// The entry of the rule, "aten::add.*"; empty without one.
  std::string rule;
  /// What the rule was given, and " + decomposed" where some calls are made of
  /// those of other operators.
  std::string text;
  /// When it makes whole what was cut: "named: REASON" for the operators whose
  /// results need all elements, or stay whole for now; "always" for others
  /// without a rule that keeps a dim cut; "some cuts" where the rule has such
  /// dims and others; "" where operands that are cut alike are never gathered,
  /// or the calls that it is made of say so.
  std::string gathers = {};
};

/// Lists every operator that takes a tensor, by name: LibTorch's, those of
/// other libraries that are loaded, and users' own.
/// Example: list_operators().size().
TESSERA_API std::vector<OperatorInfo> list_operators();

/// Tells whether an operator of this form is served by a rule that can keep a
/// dim cut: not "kernel", "random", "composite", "decomposed", "whole",
/// "fallback".
TESSERA_API bool is_rule_form(const std::string& form);

}  // namespace tessera

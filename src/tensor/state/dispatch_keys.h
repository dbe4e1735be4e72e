// The dispatch keys of LibTorch that are ours.
#pragma once

#include <c10/core/DispatchKey.h>
#include <c10/core/DispatchKeySet.h>

namespace tessera::detail::inline tensor_layer {

/// Sharded tensors, and their autograd.
constexpr c10::DispatchKey kShardedKey = c10::DispatchKey::PrivateUse3;
constexpr c10::DispatchKey kShardedAutogradKey =
    c10::DispatchKey::AutogradPrivateUse3;

/// Marks of values that are not what memory holds: conjugated, negated, zero.
constexpr auto kLazyKeys = c10::DispatchKeySet(
    {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative,
     c10::DispatchKey::ZeroTensor});

/// Reserved by LibTorch for extensions; see Note [Styles without hooks].
constexpr c10::DispatchKey kUseKey = c10::DispatchKey::DeferredInit;

/// Below autograd, and without a kernel of its own in any supported version;
/// see Note [Plain tensors that must be equal on all ranks].
constexpr c10::DispatchKey kUnshardedRandomKey = c10::DispatchKey::Fake;

/// No backend has this key: its entry in the table of an operator that ATen
/// decomposes is that decomposition.
constexpr c10::DispatchKey kUnusedKey = c10::DispatchKey::PrivateUse2;
inline constexpr c10::DispatchKeySet kUnusedKeys(kUnusedKey);

}  // namespace tessera::detail::inline tensor_layer

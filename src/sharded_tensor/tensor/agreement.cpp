#include <sharded_tensor/tensor/agreement.h>

#include <algorithm>
#include <cstring>

#include <ATen/ops/empty.h>
#include <base/copy_bytes.h>
#include <base/hash.h>
#include <comm/log/call_cause.h>
#include <tessera/comm/world.h>
#include <tessera/sharded_tensor/errors.h>

namespace tessera::detail::inline sharded_tensor_layer {

namespace {

using sharded_tensor::AttributeError;
using sharded_tensor::KeyError;

// The kinds of errors that travel between ranks.
enum Kind : int64_t {
  kNone,
  kError,
  kValue,
  kType,
  kIndex,
  kNotImplemented,
  kKey,
  kAttribute
};

Kind kind_of(const std::exception_ptr& error, std::string& text) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& e) {
    text = e.what_without_backtrace();
    return dynamic_cast<const c10::ValueError*>(&e)            ? kValue
           : dynamic_cast<const c10::TypeError*>(&e)           ? kType
           : dynamic_cast<const c10::IndexError*>(&e)          ? kIndex
           : dynamic_cast<const c10::NotImplementedError*>(&e) ? kNotImplemented
           : dynamic_cast<const KeyError*>(&e)                 ? kKey
           : dynamic_cast<const AttributeError*>(&e)           ? kAttribute
                                                               : kError;
  } catch (const std::exception& e) {
    text = e.what();
  } catch (...) {
    text = "an exception of unknown type";
  }
  return kError;
}

[[noreturn]] void raise(int64_t kind, const std::string& text) {
  const c10::SourceLocation here{__func__, __FILE__, __LINE__};
  switch (kind) {
    case kValue:
      throw c10::ValueError(here, text);
    case kType:
      throw c10::TypeError(here, text);
    case kIndex:
      throw c10::IndexError(here, text);
    case kNotImplemented:
      throw c10::NotImplementedError(here, text);
    case kKey:
      throw KeyError(here, text);
    case kAttribute:
      throw AttributeError(here, text);
    default:
      throw c10::Error(here, text);
  }
}

// The last error that a group agreed on, and its ranks: where agreements nest,
// the outer one need not agree on it again.
struct Agreed {
  std::exception_ptr error;
  std::vector<int64_t> ranks;
};
thread_local Agreed t_agreed;

at::Tensor as_bytes(const void* data, size_t size) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(size)}, at::kByte);
  base::copy_bytes(bytes.mutable_data_ptr(), data, size);
  return bytes;
}

}  // namespace

Agreement::Agreement(std::string call, sharded_tensor::ProcessGroup group)
    : call_(std::move(call)), group_(std::move(group)) {
  static_cast<void>(group_.communicator());  // throws on a rank outside
}

void Agreement::keep(const std::exception_ptr& error) {
  const auto is_told = [](int64_t rank) {
    return std::find(t_agreed.ranks.begin(), t_agreed.ranks.end(), rank) !=
           t_agreed.ranks.end();
  };
  if (error == t_agreed.error &&
      std::all_of(group_.ranks().begin(), group_.ranks().end(), is_told)) {
    std::rethrow_exception(error);
  }
  kind_ = kind_of(error, error_);
}

void Agreement::equal(const std::string& what, const std::string& value) {
  values_.emplace_back(what, value);
}

std::vector<Agreement::Vote> Agreement::vote(int64_t length) const {
  size_t hash = 0;
  for (const auto& [what, value] : values_) {
    hash = base::hash_combine(hash, base::hash_bytes(value));
  }
  Vote mine{kind_, failed() ? 0 : hash, length, {}};
  std::memcpy(
      mine.call, call_.data(), std::min(call_.size(), sizeof(mine.call) - 1));
  std::vector<Vote> votes(static_cast<size_t>(group_.size()), mine);
  if (votes.size() > 1) {
    const auto size = static_cast<int64_t>(votes.size() * sizeof(Vote));
    const at::Tensor all = at::empty({size}, at::kByte);
    const Unlabelled different_calls_are_reported_here;
    group_.communicator().all_gather(all, as_bytes(&mine, sizeof(Vote)));
    std::memcpy(votes.data(), all.const_data_ptr(), all.nbytes());
  }
  return votes;
}

std::vector<std::string> Agreement::gather(
    const std::string& mine, const std::vector<int64_t>& lengths) const {
  if (lengths.size() == 1) {
    return {mine};
  }
  int64_t total = 0;
  for (const int64_t length : lengths) {
    total += length;
  }
  const at::Tensor all = at::empty({total}, at::kByte);
  group_.communicator().all_gather_v(
      all, as_bytes(mine.data(), mine.size()), lengths);
  std::vector<std::string> texts;
  const char* next = static_cast<const char*>(all.const_data_ptr());
  for (const int64_t length : lengths) {
    texts.emplace_back(next, static_cast<size_t>(length));
    next += length;
  }
  return texts;
}

void Agreement::conclude(const std::vector<Vote>& votes) const {
  try {
    compare(votes);
  } catch (...) {
    t_agreed = {std::current_exception(), group_.ranks()};
    throw;
  }
}

void Agreement::compare(const std::vector<Vote>& votes) const {
  // Gathers texts of lengths that only their own rank knows.
  const auto share = [&](const std::string& mine) {
    int64_t length = static_cast<int64_t>(mine.size());
    std::vector<int64_t> lengths;
    for (const std::string& bytes : gather(
             {reinterpret_cast<const char*>(&length), sizeof(length)},
             std::vector<int64_t>(votes.size(), sizeof(length)))) {
      std::memcpy(&length, bytes.data(), sizeof(length));
      lengths.push_back(length);
    }
    return gather(mine, lengths);
  };
  for (size_t r = 0; r < votes.size(); ++r) {
    if (votes[r].kind != kNone) {
      const auto texts = share(error_);
      raise(
          votes[r].kind,
          "on rank " + std::to_string(group_.ranks()[r]) + ": " + texts[r]);
    }
  }
  for (size_t r = 1; r < votes.size(); ++r) {
    TORCH_CHECK_VALUE(
        std::strcmp(votes[r].call, votes[0].call) == 0, call_, " in ",
        to_string(group_), ", rank ", rank(),
        ": the ranks must make the same calls in the same order; rank ",
        group_.ranks()[0], " calls ", votes[0].call, ", rank ",
        group_.ranks()[r], " calls ", votes[r].call);
  }
  for (size_t r = 1; r < votes.size(); ++r) {
    if (votes[r].values == votes[0].values) {
      continue;
    }
    for (const auto& [what, value] : values_) {
      const auto texts = share(value);
      TORCH_CHECK_VALUE(
          texts[r] == texts[0], call_, " in ", to_string(group_), ", rank ",
          rank(), ": the ranks must pass the same ", what, "; rank ",
          group_.ranks()[0], " has ", texts[0], ", rank ", group_.ranks()[r],
          " has ", texts[r]);
    }
    TORCH_CHECK_VALUE(
        false, call_, " in ", to_string(group_), ", rank ", rank(), ": ranks ",
        group_.ranks()[0], " and ", group_.ranks()[r],
        " pass different arguments");
  }
}

void Agreement::reach() {
  conclude(vote(0));
}

std::vector<std::string> Agreement::collect(const std::string& mine) {
  const auto votes = vote(static_cast<int64_t>(mine.size()));
  conclude(votes);
  std::vector<int64_t> lengths;
  for (const Vote& v : votes) {
    lengths.push_back(v.length);
  }
  return gather(mine, lengths);
}

}  // namespace tessera::detail::inline sharded_tensor_layer

#include "comm/agreement.h"

#include <algorithm>
#include <cstring>

#include <ATen/ops/empty.h>
#include <tessera/comm/world.h>

#include "base/copy_bytes.h"
#include "base/hash.h"
#include "comm/call/call.h"
#include "comm/call/rank_errors.h"
#include "comm/log/call_cause.h"

namespace tessera::detail::inline comm_layer {

namespace {

// The last error that a group agreed on, and its ranks: where agreements nest,
// the outer one need not agree on it again.
struct Agreed {
  std::exception_ptr error;
  std::vector<int64_t> ranks;
};
thread_local Agreed t_agreed;

// What ranks compare of a text first.
struct TextDigest {
  uint64_t hash;
  int64_t length;
};

template <class Record>
std::vector<int64_t> lengths_of(const std::vector<Record>& records) {
  std::vector<int64_t> lengths;
  for (const Record& record : records) {
    lengths.push_back(record.length);
  }
  return lengths;
}

}  // namespace

std::vector<std::string> gather_bytes(
    const Communicator& group, std::string_view mine,
    const std::vector<int64_t>& lengths) {
  if (lengths.size() == 1) {
    return {std::string(mine)};
  }
  int64_t total = 0;
  for (const int64_t length : lengths) {
    total += length;
  }
  const at::Tensor given =
      at::empty({static_cast<int64_t>(mine.size())}, at::kByte);
  base::copy_bytes(given.mutable_data_ptr(), mine.data(), mine.size());
  const at::Tensor all = at::empty({total}, at::kByte);
  group.all_gather_v(all, given, lengths);
  std::vector<std::string> parts;
  const char* next = static_cast<const char*>(all.const_data_ptr());
  for (const int64_t length : lengths) {
    parts.emplace_back(next, static_cast<size_t>(length));
    next += length;
  }
  return parts;
}

std::optional<TextDifference> find_difference(
    const Communicator& group, const std::string& mine) {
  const std::vector<TextDigest> digests = gather_records<TextDigest>(
      group, {{base::hash_bytes(mine), static_cast<int64_t>(mine.size())}});
  const auto differs = [&](const TextDigest& digest) {
    return digest.hash != digests[0].hash || digest.length != digests[0].length;
  };
  const auto other = std::find_if(digests.begin(), digests.end(), differs);
  if (other == digests.end()) {
    return std::nullopt;
  }
  const auto texts = gather_bytes(group, mine, lengths_of(digests));
  const auto at = static_cast<size_t>(other - digests.begin());
  return TextDifference{
      group.ranks()[0], texts[0], group.ranks()[at], texts[at]};
}

struct Agreement::Vote {
  int64_t kind;
  int64_t number;
  uint64_t values;
  int64_t length;  // of the error, else of what is collected
  char call[40];   // cut off
};

Agreement::Agreement(
    std::string call, Communicator group, const std::vector<ErrorType>& more)
    : call_(std::move(call)),
      group_(std::move(group)),
      types_{
          error_type<c10::ValueError>(), error_type<c10::TypeError>(),
          error_type<c10::IndexError>(),
          error_type<c10::NotImplementedError>()} {
  types_.insert(types_.end(), more.begin(), more.end());
}

void Agreement::keep(const std::exception_ptr& error) {
  const std::vector<int64_t>& ranks = group_.ranks();
  const auto is_told = [](int64_t rank) {
    return std::find(t_agreed.ranks.begin(), t_agreed.ranks.end(), rank) !=
           t_agreed.ranks.end();
  };
  if (error == t_agreed.error &&
      std::all_of(ranks.begin(), ranks.end(), is_told)) {
    std::rethrow_exception(error);
  }
  kind_ = 1;
  error_ = message_of(error);
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& e) {
    const auto type = std::find_if(
        types_.begin(), types_.end(),
        [&](const ErrorType& one) { return one.matches(e); });
    if (type != types_.end()) {
      kind_ = type - types_.begin() + 2;
      number_ = type->number(e);
    }
  } catch (...) {
    // Has no type that travels.
  }
}

void Agreement::equal(const std::string& what, const std::string& value) {
  values_.emplace_back(what, value);
}

std::vector<Agreement::Vote> Agreement::vote(size_t length) const {
  size_t hash = 0;
  for (const auto& [what, value] : values_) {
    hash = base::hash_combine(hash, base::hash_bytes(value));
  }
  Vote mine{
      kind_,
      number_,
      failed() ? 0 : hash,
      static_cast<int64_t>(failed() ? error_.size() : length),
      {}};
  std::memcpy(
      mine.call, call_.data(), std::min(call_.size(), sizeof(mine.call) - 1));
  const Unlabelled different_calls_are_reported_here;
  return gather_records<Vote>(group_, {mine});
}

void Agreement::compare(const std::vector<Vote>& votes) const {
  const std::vector<int64_t>& ranks = group_.ranks();
  const std::string where = call_ + " in " + describe_group(ranks) + ", rank " +
                            std::to_string(rank()) + ": ";
  const auto failed = std::find_if(
      votes.begin(), votes.end(), [](const Vote& v) { return v.kind != 0; });
  if (failed != votes.end()) {
    std::vector<int64_t> lengths = lengths_of(votes);
    for (size_t r = 0; r < votes.size(); ++r) {
      lengths[r] = votes[r].kind != 0 ? lengths[r] : 0;
    }
    const auto at = static_cast<size_t>(failed - votes.begin());
    const std::string text = "on rank " + std::to_string(ranks[at]) + ": " +
                             gather_bytes(group_, error_, lengths)[at];
    TORCH_CHECK(failed->kind > 1, text);
    types_[static_cast<size_t>(failed->kind - 2)].raise(text, failed->number);
  }
  for (size_t r = 1; r < votes.size(); ++r) {
    TORCH_CHECK_VALUE(
        std::strcmp(votes[r].call, votes[0].call) == 0, where,
        "the ranks must make the same calls in the same order; rank ", ranks[0],
        " calls ", votes[0].call, ", rank ", ranks[r], " calls ",
        votes[r].call);
  }
  const auto other = std::find_if(
      votes.begin(), votes.end(),
      [&](const Vote& v) { return v.values != votes[0].values; });
  if (other == votes.end()) {
    return;
  }
  for (const auto& [what, value] : values_) {
    const auto different = find_difference(group_, value);
    TORCH_CHECK_VALUE(
        !different, where, "the ranks must pass the same ", what, "; rank ",
        different->rank, " has ", different->text, ", rank ",
        different->other_rank, " has ", different->other_text);
  }
  TORCH_CHECK_VALUE(
      false, where, "ranks ", ranks[0], " and ",
      ranks[static_cast<size_t>(other - votes.begin())],
      " pass different arguments");
}

std::vector<std::string> Agreement::collect(const std::string& mine) {
  const std::vector<Vote> votes = vote(mine.size());
  try {
    compare(votes);
  } catch (...) {
    t_agreed = {std::current_exception(), group_.ranks()};
    throw;
  }
  const std::vector<int64_t> lengths = lengths_of(votes);
  const bool collects = std::any_of(
      lengths.begin(), lengths.end(),
      [](int64_t length) { return length > 0; });
  return collects ? gather_bytes(group_, mine, lengths)
                  : std::vector<std::string>(votes.size());
}

}  // namespace tessera::detail::inline comm_layer

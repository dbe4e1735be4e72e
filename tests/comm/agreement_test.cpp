// What ranks agree on before data move.
#include "comm/agreement.h"

#include <gtest/gtest.h>
#include <tessera/comm/world.h>

#include "comm/expect_error.h"
#include "harness/ranks.h"

namespace tessera {
namespace {

using detail::Agreement;
using detail::error_type;
using detail::find_difference;
using harness::run_ranks;

class OwnError : public c10::Error {
  using Error::Error;
};

struct NumberedError : c10::Error {
  NumberedError(c10::SourceLocation where, std::string text, int number)
      : Error(where, std::move(text)), number_(number) {}
  int error_number() const { return number_; }

 private:
  int number_;
};

TEST(AgreementTest, ThrowsOnAllRanksWhatIsWrongOnOne) {
  run_ranks(3, [] {
    const Communicator all = init().communicator();
    const auto agree = [&](const auto& fail) {
      Agreement agreement("call", all, {error_type<OwnError>()});
      agreement.check([&] {
        if (all.rank() == 1) {
          fail("too short", 28);
        }
      });
      EXPECT_EQ(agreement.failed(), all.rank() == 1);
      agreement.reach();
    };
    const std::vector<std::string> text = {"on rank 1: too short"};
    expect_error<c10::IndexError>(
        [&] { agree(error_type<c10::IndexError>().raise); }, text);
    expect_error<OwnError>([&] { agree(error_type<OwnError>().raise); }, text);
    const auto throw_other = [](const char* what, int64_t) {
      throw std::runtime_error(what);
    };
    expect_error<c10::Error>([&] { agree(throw_other); }, text);
  });
}

TEST(AgreementTest, TheNumberOfAnErrorTravelsWithItsText) {
  run_ranks(3, [] {
    Agreement agreement(
        "call", init().communicator(), {error_type<NumberedError>()});
    agreement.check([&] {
      if (rank() == 2) {
        throw NumberedError({__func__, __FILE__, __LINE__}, "disk full", 28);
      }
    });
    try {
      agreement.reach();
      ADD_FAILURE() << "rank " << rank() << " threw nothing";
    } catch (const NumberedError& error) {
      EXPECT_EQ(error.error_number(), 28);
    }
  });
}

TEST(AgreementTest, ComparesCallsAndValues) {
  run_ranks(2, [] {
    const Communicator all = init().communicator();
    const std::string me = std::to_string(all.rank());
    Agreement calls("call " + me, all);
    expect_error<c10::ValueError>(
        [&] { calls.reach(); },
        {"in group {0, 1}, rank " + me, "rank 0 calls call 0, rank 1 calls"});
    Agreement values("call", all);
    values.equal("size", "3");
    values.equal("root", me);
    expect_error<c10::ValueError>(
        [&] { values.reach(); },
        {"must pass the same root; rank 0 has 0, rank 1 has 1"});
    Agreement fine("call", all);
    fine.equal("size", "3");
    EXPECT_EQ(
        fine.collect(std::string(all.rank() == 0 ? 0 : 5, 'x')),
        (std::vector<std::string>{"", "xxxxx"}));
  });
}

TEST(FindDifferenceTest, ComparesEveryByteOfLongTexts) {
  run_ranks(3, [] {
    const Communicator all = init().communicator();
    const std::string text(100000, 'x');
    EXPECT_FALSE(find_difference(all, text).has_value());
    const std::string last = all.rank() == 2 ? "b" : "a";
    const auto found = find_difference(all, text + last);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->rank, 0);
    EXPECT_EQ(found->other_rank, 2);
    EXPECT_EQ(found->text, text + "a");
    EXPECT_EQ(found->other_text, text + "b");
    const auto longer =
        find_difference(all, std::string(all.rank() == 1 ? 3 : 0, '\0'));
    ASSERT_TRUE(longer.has_value());
    EXPECT_EQ(longer->other_text.size(), 3U);
  });
}

}  // namespace
}  // namespace tessera

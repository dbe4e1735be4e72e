// What ranks tell the one that commits, and what becomes of it.
#include <io/model/records.h>

#include <gtest/gtest.h>

#include <io/files/error.h>

#include "io/example.h"

namespace tessera::detail {
namespace {

using io::Entry;
using io::Value;
using io_test::message_of;

io::SaveTicket ticket_of(int64_t ranks) {
  io::SaveTicket ticket;
  ticket.path = "runs/a";
  ticket.token = "0123456789abcdef";
  ticket.ranks = ranks;
  return ticket;
}

Entry tensor(
    const std::string& name, io::Dtype dtype, std::vector<int64_t> shape) {
  Entry entry;
  entry.name = name;
  entry.path = {name};
  entry.dtype = dtype;
  entry.shape = std::move(shape);
  return entry;
}

// One row of "rows" for each rank, with checksums that tell ranks apart; on
// rank 0 values, too, and a path of a list's element.
RankRecords records_of(int64_t rank, int64_t ranks) {
  RankRecords records{ticket_of(ranks).token, rank, {}};
  records.contents.files = {
      {"rank_" + std::to_string(rank), 1000}, {"more", 7}};
  Entry rows = tensor("rows", io::Dtype::kInt32, {ranks, 3});
  rows.chunks.push_back(
      {{{rank, 0}, {1, 3}},
       {0, 64, 12, uint64_t{1} << 20, {~uint64_t{0} - uint64_t(rank)}}});
  records.contents.entries.push_back(rows);
  if (rank == 0) {
    Entry empty = tensor("empty", io::Dtype::kBool, {0});
    empty.path = {"a", int64_t{3}};
    Entry value;
    value.name = "b.value";
    value.path = {"b", "value"};
    value.value =
        std::make_shared<Value>(Value::tuple({Value::floating(0.1), {}}));
    Entry large;
    large.name = "large";
    large.path = {"large"};
    large.stored_value = io::StoredBytes{1, 0, 5, 1 << 20, {17}};
    for (Entry& entry : std::vector{empty, value, large}) {
      records.contents.entries.push_back(entry);
    }
  }
  return records;
}

std::vector<std::string> encoded(int64_t ranks) {
  std::vector<std::string> all;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    all.push_back(encode_records(records_of(rank, ranks)));
  }
  return all;
}

TEST(RecordsTest, TheRecordsOfAllRanksAreOneWhole) {
  const io::Contents all = merge_records(ticket_of(3), encoded(3));
  ASSERT_EQ(all.files.size(), 6U);
  EXPECT_EQ(all.files[4], (io::StoredFile{"rank_2", 1000}));
  ASSERT_EQ(all.entries.size(), 4U);
  const Entry& rows = all.entries[0];
  EXPECT_EQ(rows.name, "rows");
  EXPECT_EQ(rows.path, io::Path{"rows"});
  EXPECT_EQ(rows.shape, (std::vector<int64_t>{3, 3}));
  ASSERT_EQ(rows.chunks.size(), 3U);
  for (int64_t rank = 0; rank < 3; ++rank) {
    Entry wanted = records_of(rank, 3).contents.entries[0];
    wanted.chunks[0].stored.file = static_cast<size_t>(2 * rank);
    EXPECT_EQ(rows.chunks[static_cast<size_t>(rank)], wanted.chunks[0]);
  }
  EXPECT_EQ(all.entries[1].path, (io::Path{"a", int64_t{3}}));
  EXPECT_EQ(all.entries[1].dtype, io::Dtype::kBool);
  EXPECT_EQ(all.entries[2].path, (io::Path{"b", "value"}));
  EXPECT_EQ(
      *all.entries[2].value, Value::tuple({Value::floating(0.1), Value()}));
  EXPECT_EQ(
      *all.entries[3].stored_value, (io::StoredBytes{1, 0, 5, 1 << 20, {17}}));
}

// What merging says where rank 1 has something else than it should.
std::string message_with(const std::function<void(RankRecords&)>& change) {
  RankRecords second = records_of(1, 2);
  change(second);
  return message_of([&] {
    merge_records(
        ticket_of(2),
        {encode_records(records_of(0, 2)), encode_records(second)});
  });
}

TEST(RecordsTest, RanksThatDisagreeAreToldApart) {
  const auto expect = [](const std::string& part,
                         const std::function<void(RankRecords&)>& change) {
    EXPECT_PRED_FORMAT2(::testing::IsSubstring, part, message_with(change));
  };
  expect("no error", [](RankRecords&) {});
  expect(
      "'rows' of rank 1 is int64[2, 3]; another rank says int32[2, 3]",
      [](RankRecords& r) { r.contents.entries[0].dtype = io::Dtype::kInt64; });
  expect(
      "'rows' of rank 1 is int32[3, 3]; another rank says int32[2, 3]",
      [](RankRecords& r) {
        r.contents.entries[0].shape = {3, 3};
      });
  expect(
      "'rows' of rank 1 has the path [\"x\",\"rows\"]; another rank says "
      "[\"rows\"]",
      [](RankRecords& r) {
        r.contents.entries[0].path = {"x", "rows"};
      });
  expect("'b.value' of rank 1 is saved twice", [](RankRecords& r) {
    r.contents.entries.push_back(records_of(0, 2).contents.entries[2]);
  });
  expect("'large' of rank 1 is saved twice", [](RankRecords& r) {
    r.contents.entries.push_back(records_of(0, 2).contents.entries[3]);
  });
  expect("records 1 are those of rank 0", [](RankRecords& r) { r.rank = 0; });
  expect("of another save", [](RankRecords& r) { r.token = "another"; });
}

TEST(RecordsTest, BytesThatAreNoRecordsAreRefused) {
  const std::vector<std::string> whole = encoded(2);
  const auto merged = [&](const std::string& first) {
    return message_of([&] { merge_records(ticket_of(2), {first, whole[1]}); });
  };
  for (size_t size = 0; size < whole[0].size(); ++size) {
    EXPECT_NE(merged(whole[0].substr(0, size)), "no error") << size;
  }
  EXPECT_NE(
      merged(whole[0] + "x").find("no records of a rank: something follows"),
      std::string::npos);
  // Some of these are other records; none is anything worse.
  for (size_t i = 0; i < whole[0].size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = whole[0];
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
      merged(flipped);
    }
  }
}

}  // namespace
}  // namespace tessera::detail

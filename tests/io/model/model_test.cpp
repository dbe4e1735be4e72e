#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include <io/files/error.h>
#include <io/model/check_entry.h>
#include <io/model/payload.h>
#include <io/model/reader.h>
#include <io/model/tensor_reader.h>
#include <io/model/value_json.h>

namespace tessera::detail {
namespace {

using io::Box;
using io::Value;

io::Entry tensor_of(std::vector<int64_t> shape, std::vector<Box> boxes) {
  io::Entry entry;
  entry.name = "w";
  entry.dtype = io::Dtype::kFloat32;
  entry.shape = std::move(shape);
  for (Box& box : boxes) {
    entry.chunks.push_back({std::move(box), {}});
  }
  return entry;
}

bool covers(std::vector<int64_t> shape, std::vector<Box> boxes) {
  try {
    check_cover("file", tensor_of(std::move(shape), std::move(boxes)));
    return true;
  } catch (const io::Error&) {
    return false;
  }
}

TEST(CheckCoverTest, EachElementIsInOneChunk) {
  EXPECT_TRUE(covers({4}, {{{0}, {3}}, {{3}, {1}}}));
  EXPECT_FALSE(covers({4}, {{{0}, {3}}, {{2}, {2}}}));
  EXPECT_FALSE(covers({4}, {{{0}, {3}}}));
  EXPECT_FALSE(covers({4}, {}));
  EXPECT_FALSE(covers({4}, {{{0}, {4}}, {{0}, {4}}}));
  EXPECT_TRUE(covers({}, {{{}, {}}}));
  EXPECT_FALSE(covers({}, {{{}, {}}, {{}, {}}}));
  EXPECT_FALSE(covers({}, {}));
  EXPECT_TRUE(covers({0, 3}, {}));
  EXPECT_TRUE(covers({0, 3}, {{{0, 0}, {0, 3}}, {{0, 0}, {0, 3}}}));
  // Five boxes around a hole in the middle, which no order of cuts makes.
  EXPECT_TRUE(covers(
      {3, 3}, {{{0, 0}, {1, 2}},
               {{0, 2}, {2, 1}},
               {{2, 1}, {1, 2}},
               {{1, 0}, {2, 1}},
               {{1, 1}, {1, 1}}}));
  EXPECT_FALSE(covers(
      {3, 3}, {{{0, 0}, {1, 2}},
               {{0, 2}, {2, 1}},
               {{2, 1}, {1, 2}},
               {{1, 0}, {2, 1}},
               {{0, 0}, {1, 1}}}));  // as many elements, one of them twice
}

TEST(CheckCoverTest, ManyChunksTakeLinearTime) {
  std::vector<Box> boxes;
  for (int64_t i = 0; i < 300000; ++i) {
    boxes.push_back({{i % 600, i / 600 * 2}, {1, 2}});
  }
  EXPECT_TRUE(covers({600, 1000}, boxes));
  boxes[777].offsets[0] ^= 1;
  EXPECT_FALSE(covers({600, 1000}, boxes));
}

TEST(CheckShapeTest, RefusesWhatNoTensorHas) {
  const auto check = [](std::vector<int64_t> shape) {
    check_shape("file", "w", io::Dtype::kFloat32, shape);
  };
  check({});
  check({0, INT64_MAX, 5});
  check({int64_t{1} << 60});
  EXPECT_THROW(check({-1}), io::Error);
  EXPECT_THROW(check({int64_t{1} << 61}), io::Error);  // 2^63 bytes
  EXPECT_THROW(check({int64_t{1} << 40, int64_t{1} << 40}), io::Error);
  EXPECT_THROW(check(std::vector<int64_t>(65, 1)), io::Error);
}

TEST(DtypeTest, TableIsInTheOrderOfTheEnumeration) {
  for (size_t i = 0; i < io::dtypes().size(); ++i) {
    const io::DtypeInfo& info = io::dtypes()[i];
    EXPECT_EQ(static_cast<size_t>(info.dtype), i);
    EXPECT_EQ(io::find_dtype(info.name), info.dtype);
    if (!info.safetensors.empty()) {
      EXPECT_EQ(io::find_safetensors_dtype(info.safetensors), info.dtype);
    }
    if (!info.storage.empty()) {
      EXPECT_EQ(io::find_storage_dtype(info.storage), info.dtype);
    }
  }
  EXPECT_EQ(io::dtypes().size(), 22u);
  EXPECT_EQ(io::find_dtype("float31"), std::nullopt);
  EXPECT_EQ(io::find_storage_dtype(""), std::nullopt);
}

// A payload in memory that knows which windows were read.
class MemoryPayload : public Payload {
 public:
  MemoryPayload(std::string bytes, uint64_t window)
      : Payload(bytes.size(), window), bytes_(std::move(bytes)) {}
  void read_window(uint64_t index, void* out) override {
    std::memcpy(out, bytes_.data() + index * window(), window_size(index));
    reads.push_back(index);
  }
  std::vector<uint64_t> reads;

 private:
  std::string bytes_;
};

std::string iota_bytes(int64_t count) {
  std::string bytes;
  for (int32_t i = 0; i < count; ++i) {
    bytes.append(reinterpret_cast<const char*>(&i), sizeof(i));
  }
  return bytes;
}

TEST(CopyPartTest, ReadsOnlyWindowsThatItTouches) {
  MemoryPayload payload(iota_bytes(100), 40);  // 10 x 10, a row in a window
  payload.strides = {10, 1};
  std::vector<int32_t> out(4, -1);
  copy_part(payload, {{0, 0}, {10, 10}}, {{3, 8}, {2, 2}}, 4, {out.data()});
  EXPECT_EQ(out, (std::vector<int32_t>{38, 39, 48, 49}));
  EXPECT_EQ(payload.reads, (std::vector<uint64_t>{3, 4}));
}

// Against a loop over indices: random shapes, strides of source and target,
// windows.
TEST(CopyPartTest, AgreesWithALoopOverIndices) {
  std::mt19937 random(11);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  for (int round = 0; round < 3000; ++round) {
    const auto dims = static_cast<size_t>(below(4));
    Box chunk, part;
    for (size_t d = 0; d < dims; ++d) {
      chunk.offsets.push_back(below(5));
      chunk.sizes.push_back(1 + below(5));
      part.offsets.push_back(chunk.offsets[d] + below(chunk.sizes[d]));
      part.sizes.push_back(
          1 + below(chunk.offsets[d] + chunk.sizes[d] - part.offsets[d]));
    }
    const auto permuted = [&](const std::vector<int64_t>& sizes) {
      std::vector<size_t> order(dims);
      for (size_t d = 0; d < dims; ++d) {
        order[d] = d;
      }
      std::shuffle(order.begin(), order.end(), random);
      std::vector<int64_t> strides(dims);
      int64_t next = 1 + below(2);
      for (const size_t d : order) {
        strides[d] = next;
        next *= sizes[d] + below(2);
      }
      return strides;
    };
    MemoryPayload payload(
        iota_bytes(4000), 4u * static_cast<uint64_t>(1 + below(200)));
    payload.strides = permuted(chunk.sizes);
    payload.first_element = static_cast<uint64_t>(below(5));
    ASSERT_TRUE(fits_payload(payload, chunk.sizes, 4));
    const std::vector<int64_t> strides = permuted(part.sizes);
    std::vector<int32_t> out(4000, -1), expected(4000, -1);
    std::vector<int64_t> index(dims, 0);
    for (int64_t n = 0; n < *io::element_count(part.sizes); ++n) {
      int64_t rest = n, from = 0, to = 0;
      for (size_t d = dims; d-- > 0;) {
        const int64_t i = rest % part.sizes[d];
        rest /= part.sizes[d];
        from += (part.offsets[d] + i - chunk.offsets[d]) * payload.strides[d];
        to += i * strides[d];
      }
      expected[static_cast<size_t>(to)] = static_cast<int32_t>(
          static_cast<int64_t>(payload.first_element) + from);
    }
    copy_part(payload, chunk, part, 4, {out.data(), strides});
    ASSERT_EQ(out, expected) << print(chunk) << " part " << print(part);
  }
}

TEST(ForEachPartTest, PartsAreSmallAndInRowMajorOrder) {
  const io::Box box{{1, 2, 3}, {3, 4, 5}};
  for (const int64_t bytes : {1, 4, 8, 20, 36, 80, 100, 240, 1000}) {
    std::vector<std::vector<int64_t>> seen;
    io::for_each_part(box, io::Dtype::kInt32, bytes, [&](const io::Box& part) {
      const int64_t count = *io::element_count(part.sizes);
      EXPECT_LE(count * 4, std::max<int64_t>(bytes, 4)) << print(part);
      for (int64_t n = 0; n < count; ++n) {
        const int64_t rows = part.sizes[1], columns = part.sizes[2];
        seen.push_back(
            {part.offsets[0] + n / (rows * columns),
             part.offsets[1] + n / columns % rows,
             part.offsets[2] + n % columns});
      }
    });
    EXPECT_EQ(seen.size(), 60u) << bytes;
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end())) << bytes;
    EXPECT_EQ(seen.front(), box.offsets);
  }
  int calls = 0;
  io::for_each_part(
      {{0}, {0}}, io::Dtype::kInt32, 8, [&](const io::Box&) { ++calls; });
  EXPECT_EQ(calls, 0);
  io::for_each_part({}, io::Dtype::kInt32, 1, [&](const io::Box&) { ++calls; });
  EXPECT_EQ(calls, 1);
}

TEST(FitsPayloadTest, RefusesStridesThatLeaveThePayload) {
  MemoryPayload payload(iota_bytes(24), 64);
  const auto fits = [&](std::vector<int64_t> strides, uint64_t first) {
    payload.strides = std::move(strides);
    payload.first_element = first;
    return fits_payload(payload, {4, 6}, 4);
  };
  EXPECT_TRUE(fits({6, 1}, 0));
  EXPECT_TRUE(fits({1, 4}, 0));
  EXPECT_TRUE(fits({0, 0}, 23));
  EXPECT_FALSE(fits({6, 1}, 1));
  EXPECT_FALSE(fits({7, 1}, 0));
  EXPECT_FALSE(fits({-1, 1}, 5));
  EXPECT_FALSE(fits({INT64_MAX, 1}, 0));
  EXPECT_FALSE(fits({6, 1}, UINT64_MAX));
  EXPECT_FALSE(fits({6}, 0));
}

Value example_value() {
  return Value::dict(
      {Value::string("a\n\xc3\xa9"),
       Value::list({Value::integer(INT64_MIN), Value::floating(-0.0), Value()}),
       Value::integer(3), Value::tuple({Value::boolean(true)}),
       Value::bytes(std::string("\0\xff", 2)),
       Value::floating(std::numeric_limits<double>::quiet_NaN()),
       Value::string("inf"),
       Value::floating(-std::numeric_limits<double>::infinity()),
       Value::string("empty"), Value::list({}), Value::tuple({}),
       Value::dict({})});
}

std::string print_value(const Value& value) {
  base::JsonWriter out;
  write_value(out, value);
  return out.take();
}

Value parse_value(const std::string& text) {
  base::JsonReader in(text, 256);
  Value value = read_value(in);
  in.finish();
  return value;
}

TEST(ValueTest, KindsThatPythonTellsApartAreToldApart) {
  EXPECT_NE(Value::integer(1), Value::floating(1));
  EXPECT_NE(Value::list({}), Value::tuple({}));
  EXPECT_NE(Value::string("a"), Value::bytes("a"));
  EXPECT_EQ(Value::integer(3).as_float(), 3);
  EXPECT_THROW(Value::floating(3).as_integer(), io::Error);
  try {
    Value::opaque("numpy.ndarray").as_integer();
    FAIL();
  } catch (const io::Error& error) {
    EXPECT_EQ(error.kind(), io::ErrorKind::kUnsupported);
    EXPECT_NE(
        std::string(error.what()).find("numpy.ndarray"), std::string::npos);
  }
}

TEST(LimitsTest, NothingIsWrittenThatNoReaderTakes) {
  io::Contents contents;
  contents.files.resize(100'000);
  EXPECT_NO_THROW(check_counts("runs/a", contents));
  contents.files.resize(100'001);
  const auto message = [](const std::function<void()>& call) {
    try {
      call();
    } catch (const io::Error& error) {
      EXPECT_EQ(error.kind(), io::ErrorKind::kUnsupported);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(
      message([&] { check_counts("runs/a", contents); }),
      "runs/a: has 0 entries in 0 parts and 100001 files; at most 1000000 "
      "entries, 4000000 parts and 100000 files can be read again");
  EXPECT_EQ(message([] { check_index_bytes("m", 100, 100); }), "");
  EXPECT_NE(
      message([] {
        check_index_bytes("m", 101, 100);
      }).find("m: takes more than 100 bytes, which could not be read again"),
      std::string::npos);
}

TEST(ValueJsonTest, ReadsBackWhatItWrites) {
  const std::string text = print_value(example_value());
  EXPECT_EQ(parse_value(text), example_value());
  EXPECT_EQ(print_value(parse_value(text)), text);
}

TEST(ValueJsonTest, RefusesWhatItDoesNotWrite) {
  for (const char* text :
       {"{}", "{\"list\":[]}", "{\"bytes\":\"0\"}", "{\"bytes\":\"0G\"}",
        "{\"float\":\"3ff0000000000000\"}", "{\"dict\":[[1]]}",
        "{\"dict\":[[1,2,3]]}", "{\"tuple\":[],\"bytes\":\"\"}"}) {
    EXPECT_THROW(parse_value(text), base::JsonError) << text;
  }
  EXPECT_THROW(print_value(Value::string("\xff")), io::Error);
  EXPECT_THROW(print_value(Value::opaque("x")), io::Error);
}

TEST(ValueJsonTest, NestingHasALimit) {
  Value value;
  for (int i = 0; i < 64; ++i) {
    value = Value::dict({Value::integer(i), value});
  }
  EXPECT_EQ(parse_value(print_value(value)), value);
  EXPECT_THROW(print_value(Value::list({value})), io::Error);
  std::string deep = "0";
  for (int i = 0; i < 70; ++i) {
    deep = "[" + deep + "]";
  }
  EXPECT_THROW(parse_value(deep), base::JsonError);
}

}  // namespace
}  // namespace tessera::detail

// Random layouts come back from their text; random texts give a value or an
// error with a place, never anything else.
#include <algorithm>
#include <string_view>

#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <tessera/layout/notation.h>

#include "layout/random_case.h"

namespace tessera {
namespace {

using List = std::vector<int64_t>;

List random_lengths(Random& random, int64_t count, int64_t total) {
  List lengths;
  for (int64_t r = 1; r < count; ++r) {
    lengths.push_back(random.between(0, total));
    total -= lengths.back();
  }
  lengths.push_back(total);
  return lengths;
}

MeshShape random_mesh(Random& random, int64_t ndim) {
  List sizes, ranks;
  std::vector<std::string> names;
  const bool named = random.flip();
  for (int64_t m = 0; m < ndim; ++m) {
    sizes.push_back(random.between(1, 4));
    if (named) {
      names.push_back(std::string(1, static_cast<char>('a' + m)) + "_2.x-y");
    }
  }
  const MeshShape mesh(sizes, names);
  if (random.flip()) {
    const bool keep = ndim < 2 || random.flip();
    return keep ? mesh
                : mesh.slice({ndim - 1}, random.between(0, mesh.size() - 1));
  }
  for (int64_t i = 0; i < mesh.size(); ++i) {
    ranks.push_back((i * 5 + random.between(0, 3)) * 11 + i);
  }
  return MeshShape::from_ranks(ranks, sizes, names);
}

Layout random_layout(Random& random, int64_t size) {
  List shape;
  for (int64_t d = random.between(0, size); d > 0; --d) {
    shape.push_back(random.between(0, 12));
  }
  const auto ndim = static_cast<int64_t>(shape.size());
  const MeshShape mesh = random_mesh(random, random.between(0, size));
  const auto op = static_cast<ReduceOp>(random.between(0, 4));
  Placements placements;
  std::vector<int64_t> cut(shape.size(), 0);
  for (int64_t m = 0; m < mesh.ndim(); ++m) {
    const int64_t kind = random.between(0, ndim > 0 ? 4 : 1);
    const int64_t d = ndim > 0 ? random.between(0, ndim - 1) : 0;
    const auto at = static_cast<size_t>(d);
    if (kind == 0) {
      placements.push_back(Replicate());
    } else if (kind == 1) {
      placements.push_back(Partial(op));
    } else if (kind == 2 && cut[at] == 0) {
      placements.push_back(
          RaggedShard(d, random_lengths(random, mesh.size(m), shape[at])));
      ++cut[at];
    } else {
      placements.push_back(
          kind == 3 ? Shard(d - (random.flip() ? ndim : 0))
                    : StridedShard(d, random.between(1, 5)));
      ++cut[at];
    }
  }
  // Reverse the turns of dims without ragged cuts, which must come first.
  for (int64_t d = 0; d < ndim; ++d) {
    int64_t turn = cut[static_cast<size_t>(d)];
    const bool reverse =
        random.flip() &&
        std::none_of(placements.begin(), placements.end(), [](const auto& p) {
          return p.kind() == Placement::Kind::kRaggedShard;
        });
    for (Placement& p : placements) {
      if (reverse && (p.is_shard(d) || p.is_shard(d - ndim))) {
        p = p.with_order(--turn);
      }
    }
  }
  return Layout(shape, mesh, placements);
}

TEST(NotationRoundTrip, RandomLayoutsComeBackFromTheirText) {
  for_random_cases(
      20000, 4, [](Random& random, int64_t size) -> std::optional<std::string> {
        const Layout layout = random_layout(random, size);
        const std::string text = "bf16" + to_string(layout);
        const TypedLayout back = parse_layout(text);
        if (back.dtype != "bf16" || back.layout != layout ||
            back.layout.hash() != layout.hash() ||
            "bf16" + to_string(back.layout) != text) {
          return text + " came back as " + to_string(back.layout);
        }
        if (parse_mesh(to_string(layout.mesh())) != layout.mesh() ||
            parse_shape(shape_to_string(layout.shape())) != layout.shape() ||
            parse_placements(to_string(layout.placements())) !=
                layout.placements()) {
          return "a part does not come back: " + text;
        }
        for (const Placement& p : layout.placements()) {
          if (parse_placement(to_string(p)) != p) {
            return to_string(p) + " does not come back";
          }
        }
        return std::nullopt;
      });
}

// Calls every parser; anything but a value or a c10::Error ends the test.
int parse_all(std::string_view text) {
  int values = 0;
  const auto attempt = [&](auto parse) {
    try {
      parse(text);
      ++values;
    } catch (const c10::Error&) {
    }
  };
  attempt([](std::string_view t) { to_string(parse_placement(t)); });
  attempt([](std::string_view t) { to_string(parse_placements(t)); });
  attempt([](std::string_view t) { to_string(parse_mesh(t)); });
  attempt([](std::string_view t) { shape_to_string(parse_shape(t)); });
  attempt([](std::string_view t) { to_string(parse_layout(t).layout); });
  return values;
}

TEST(NotationFuzz, RandomBytesGiveAValueOrAnError) {
  for_random_cases(
      4000, 40, [](Random& random, int64_t size) -> std::optional<std::string> {
        std::string text;
        for (int64_t i = 0; i < size; ++i) {
          text.push_back(static_cast<char>(random.between(0, 255)));
        }
        parse_all(text);
        return std::nullopt;
      });
}

TEST(NotationFuzz, RandomWordsAndDamagedLayoutsGiveAValueOrAnError) {
  constexpr std::string_view kWords[] = {
      "R",
      "S",
      "SS",
      "RS",
      "P",
      "(",
      ")",
      "[",
      "]",
      ",",
      ";",
      "=",
      "@",
      "x",
      " ",
      "mesh",
      "mesh(",
      "ranks ",
      "0",
      "1",
      "2",
      "-1",
      "sum",
      "f32",
      "9223372036854775807",
      "-9223372036854775808",
      "99999999999999999999",
      "1000000000000",
      "S(0)",
      "SS(0,1000000000000)"};
  int values = 0;
  for_random_cases(
      20000, 24,
      [&](Random& random, int64_t size) -> std::optional<std::string> {
        std::string text =
            random.flip() ? to_string(random_layout(random, 2)) : std::string();
        for (int64_t i = 0; i < size % 6 + 1; ++i) {
          const auto at = static_cast<size_t>(
              random.between(0, static_cast<int64_t>(text.size())));
          const size_t erased = static_cast<size_t>(random.between(0, 2));
          const auto word = kWords[static_cast<size_t>(
              random.between(0, std::ssize(kWords) - 1))];
          text.replace(at, erased, word);
        }
        values += parse_all(text);
        return std::nullopt;
      });
  EXPECT_GT(values, 1000);  // the texts are not all nonsense
}

}  // namespace
}  // namespace tessera

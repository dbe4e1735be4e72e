// Random layouts: device positions in both texts by an independent reference,
// and back; random texts: a ValueError, or a value that prints back.
#include <algorithm>

#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <tessera/layout/notation.h>
#include <tessera/layout/xla.h>

#include "layout/random_case.h"
#include "layout/xla/xla_reference.h"

namespace tessera {
namespace {

using reference::List;
using Wrong = std::optional<std::string>;

void shuffle(Random& random, List& list) {
  for (size_t i = list.size(); i > 1; --i) {
    std::swap(
        list[i - 1],
        list[static_cast<size_t>(random.between(0, std::ssize(list) - 1))]);
  }
}

MeshShape random_mesh_up_to(Random& random, int64_t size) {
  List sizes;
  std::vector<std::string> names;
  const bool named = random.flip();
  for (int64_t m = random.between(0, size); m > 0; --m) {
    sizes.push_back(random.between(1, 4));
    if (named) {
      names.push_back(std::string("a.") + static_cast<char>('a' + m));
    }
  }
  if (sizes.empty()) {
    return MeshShape::from_ranks({random.between(0, 9)}, {});
  }
  const MeshShape mesh(sizes, names);
  if (random.flip()) {
    return mesh;
  }
  List ranks = mesh.ranks();
  shuffle(random, ranks);
  return MeshShape::from_ranks(ranks, sizes, names);
}

struct Case {
  Layout layout;   // with turns
  Layout strided;  // the same, with strided cuts instead of turns
};

// Cuts with random turns, of sizes that XLA can express.
Case random_case(Random& random, int64_t size) {
  const MeshShape mesh = random_mesh_up_to(random, size);
  List shape(static_cast<size_t>(random.between(0, 3)), 1);
  const auto ndim = static_cast<int64_t>(shape.size());
  const ReduceOp op = std::vector{
      ReduceOp::kSum, ReduceOp::kMax,
      ReduceOp::kMin}[static_cast<size_t>(random.between(0, 2))];
  Placements placements(static_cast<size_t>(mesh.ndim()), Replicate());
  std::vector<List> orders(shape.size());
  for (int64_t m = 0; m < mesh.ndim(); ++m) {
    const int64_t kind = random.between(-2, ndim - 1);
    if (kind == -1) {
      placements[static_cast<size_t>(m)] = Partial(op);
    } else if (kind >= 0) {
      orders[static_cast<size_t>(kind)].push_back(m);
    }
  }
  Placements strided = placements;
  for (size_t d = 0; d < orders.size(); ++d) {
    List& order = orders[d];
    shuffle(random, order);
    int64_t tiles = 1, real = 0;
    for (const int64_t m : order) {
      tiles *= mesh.size(m);
      real += mesh.size(m) > 1 ? 1 : 0;
    }
    shape[d] = real > 1 ? tiles * random.between(1, 3) : random.between(1, 13);
    for (size_t turn = 0; turn < order.size(); ++turn) {
      const auto m = static_cast<size_t>(order[turn]);
      int64_t pieces = 1;  // made by later mesh dims with an earlier turn
      for (size_t before = 0; before < turn; ++before) {
        pieces *= order[before] > order[turn] ? mesh.size(order[before]) : 1;
      }
      const auto dim = static_cast<int64_t>(d);
      placements[m] = Shard(dim).with_order(static_cast<int64_t>(turn));
      strided[m] = pieces > 1 ? StridedShard(dim, pieces) : Shard(dim);
    }
  }
  return {Layout(shape, mesh, placements), Layout(shape, mesh, strided)};
}

// The layout with R for every mesh dim of one rank.
Layout without_single(const Layout& layout) {
  Placements placements = layout.placements();
  List turn(layout.shape().size(), 0);
  for (size_t d = 0; d < layout.shape().size(); ++d) {
    for (const int64_t m : layout.cuts(static_cast<int64_t>(d))) {
      Placement& p = placements[static_cast<size_t>(m)];
      p = p.with_order(layout.mesh().size(m) > 1 ? turn[d]++ : int64_t{0});
    }
  }
  for (size_t m = 0; m < placements.size(); ++m) {
    if (layout.mesh().size(static_cast<int64_t>(m)) == 1) {
      placements[m] = Replicate();
    }
  }
  return Layout(layout.shape(), layout.mesh(), placements);
}

// Devices with equal addends in one must have equal addends in the other.
bool same_shards(const reference::XlaShards& a, const reference::XlaShards& b) {
  std::map<int64_t, int64_t> to, from;
  if (a.size() != b.size()) {
    return false;
  }
  for (const auto& [device, shard] : a) {
    const auto other = b.find(device);
    if (other == b.end() || other->second.indices != shard.indices ||
        to.emplace(shard.addend, other->second.addend).first->second !=
            other->second.addend ||
        from.emplace(other->second.addend, shard.addend).first->second !=
            shard.addend) {
      return false;
    }
  }
  return true;
}

Wrong wrong_positions(const Layout& layout) {
  const auto want = reference::shards_of_layout(layout);
  const std::string hlo = to_hlo_sharding(layout), sdy = to_shardy(layout);
  if (layout.mesh().ndim() == 0) {
    const auto device = std::to_string(layout.mesh().rank_at({}));
    return hlo == "{maximal device=" + device + "}" ? Wrong() : hlo;
  }
  if (!same_shards(
          want, reference::shards_of_hlo(
                    hlo, layout.shape(), layout.mesh().ranks()))) {
    return to_string(layout) + " is not " + hlo;
  }
  if (!same_shards(want, reference::shards_of_shardy(sdy, layout.shape()))) {
    return to_string(layout) + " is not " + sdy;
  }
  return std::nullopt;
}

Wrong wrong_round_trip(const Layout& layout) {
  const std::string hlo = to_hlo_sharding(layout), sdy = to_shardy(layout);
  const List& shape = layout.shape();
  const Layout from_hlo = from_hlo_sharding(hlo, shape, layout.mesh());
  if (from_hlo != without_single(layout) || to_hlo_sharding(from_hlo) != hlo) {
    return to_string(layout) + ", " + hlo + " came back as " +
           to_string(from_hlo);
  }
  const Layout back = from_shardy(sdy, shape);
  const Layout known =
      from_shardy(sdy.substr(sdy.find('\n')), shape, layout.mesh());
  if (back != layout || known != layout || to_shardy(back) != sdy) {
    return to_string(layout) + ", " + sdy + " came back as " + to_string(back);
  }
  if (hlo.find("devices") == std::string::npos) {
    return std::nullopt;
  }
  const Layout own_mesh = from_hlo_sharding(hlo, shape);
  return to_hlo_sharding(own_mesh) == hlo &&
                 same_shards(
                     reference::shards_of_layout(own_mesh),
                     reference::shards_of_layout(layout))
             ? Wrong()
             : hlo + " became " + to_string(own_mesh);
}

TEST(XlaRoundTrip, RandomMeshesKeepDevicePositionsInBothTexts) {
  for_random_cases(3000, 5, [](Random& random, int64_t size) -> Wrong {
    const auto [layout, strided] = random_case(random, size);
    const List sizes = layout.mesh().sizes();
    const bool ones = std::find(sizes.begin(), sizes.end(), 1) != sizes.end();
    if (to_hlo_sharding(strided) != to_hlo_sharding(layout) ||
        (!ones && to_shardy(strided) != to_shardy(layout))) {
      return to_string(strided) + " prints unlike " + to_string(layout);
    }
    if (const Wrong wrong = wrong_positions(strided)) {
      return wrong;
    }
    if (const Wrong wrong = wrong_positions(layout)) {
      return wrong;
    }
    return wrong_round_trip(layout);
  });
}

// Anything goes: uneven, strided, ragged, every reduction.
Layout any_layout(Random& random, int64_t size) {
  const MeshShape mesh = random_mesh_up_to(random, std::min<int64_t>(size, 3));
  const List shape{random.between(1, 12), random.between(1, 12)};
  const auto op = static_cast<ReduceOp>(random.between(0, 4));
  Placements placements;
  for (int64_t m = 0; m < mesh.ndim(); ++m) {
    const int64_t d = random.between(0, 1);
    switch (random.between(0, 7)) {
      case 0:
        placements.push_back(Partial(op));
        break;
      case 1:
        placements.push_back(Replicate());
        break;
      case 2:
      case 3:
      case 4:
        placements.push_back(StridedShard(d, random.between(1, 4)));
        break;
      default:
        placements.push_back(Shard(d));
    }
  }
  return Layout(shape, mesh, placements);
}

TEST(XlaRoundTrip, AnyLayoutIsRefusedOrHasTheRightPositions) {
  int printed = 0, refused = 0;
  for_random_cases(20000, 4, [&](Random& random, int64_t size) -> Wrong {
    const Layout layout = any_layout(random, size);
    try {
      to_shardy(layout);
    } catch (const c10::ValueError&) {
      ++refused;
      return std::nullopt;
    }
    ++printed;
    return wrong_positions(layout);
  });
  EXPECT_GT(printed, 2000);
  EXPECT_GT(refused, 2000);
}

// Changes some characters: cuts, doubles and writes words of both languages.
std::string damaged(Random& random, std::string text) {
  constexpr std::string_view kWords[] = {
      "{",
      "}",
      "[",
      "]",
      "<=[",
      "T(",
      ")",
      ",",
      "=",
      "\"",
      "<",
      ">",
      "@",
      "#sdy.sharding<@mesh, ",
      "sdy.mesh @mesh = <[",
      "device_ids=[",
      "unreduced",
      "replicated",
      "maximal device=",
      "devices=[",
      " last_tile_dim_replicate",
      " last_tile_dims={",
      "max",
      "min",
      "?",
      "\"x\"",
      "\"y\"",
      "0",
      "1",
      "2",
      "3",
      "4",
      "8",
      "-1",
      "9223372036854775807",
      "99999999999999999999",
      "\n",
      " ",
      " metadata={op_type=\"sdy::reduction_op\" op_name=\"MAX\"}"};
  for (int64_t i = random.between(1, 3); i > 0; --i) {
    const auto at = static_cast<size_t>(random.between(0, std::ssize(text)));
    const auto erased = static_cast<size_t>(random.between(0, 3));
    switch (random.between(0, 3)) {
      case 0:
        text.erase(std::min(at, text.size()), erased);
        break;
      case 1:
        text.insert(at, text.substr(at, erased * 4));
        break;
      case 2:
        text.insert(at, 1, static_cast<char>(random.between(0, 255)));
        break;
      default:
        text.replace(
            at, erased,
            kWords[static_cast<size_t>(
                random.between(0, std::ssize(kWords) - 1))]);
    }
  }
  return text;
}

// Tells whether `read` gave a value; it must then print, and be read again as
// itself. Anything but a ValueError ends the test.
template <typename Read, typename Print>
bool reads(const std::string& text, const Read& read, const Print& print) {
  std::optional<Layout> layout;
  try {
    layout = read(text);
  } catch (const c10::ValueError&) {
    return false;
  }
  const std::string printed = print(*layout);
  if (printed != "{replicated}" && printed.rfind("{unreduced", 0) != 0) {
    EXPECT_EQ(print(read(printed)), printed) << text;
  }
  return true;
}

TEST(XlaFuzz, DamagedTextsGiveAValueErrorOrAValueThatPrintsBack) {
  int texts = 0, values = 0;
  for_random_cases(25000, 4, [&](Random& random, int64_t size) -> Wrong {
    const Layout layout = random_case(random, size).layout;
    const List& shape = layout.shape();
    const MeshShape& mesh = layout.mesh();
    const std::string sdy = to_shardy(layout);
    const std::string hlo = damaged(random, to_hlo_sharding(layout));
    const std::string both = damaged(random, sdy);
    const std::string alone = damaged(random, sdy.substr(sdy.find('\n') + 1));
    const auto count = [&](bool value) {
      ++texts;
      values += value ? 1 : 0;
    };
    count(reads(
        hlo, [&](const auto& t) { return from_hlo_sharding(t, shape); },
        to_hlo_sharding));
    count(reads(
        hlo, [&](const auto& t) { return from_hlo_sharding(t, shape, mesh); },
        to_hlo_sharding));
    count(reads(
        both, [&](const auto& t) { return from_shardy(t, shape); }, to_shardy));
    count(reads(
        alone, [&](const auto& t) { return from_shardy(t, shape, mesh); },
        [](const Layout& back) {
          const std::string text = to_shardy(back);
          return text.substr(text.find('\n') + 1);
        }));
    return std::nullopt;
  });
  EXPECT_EQ(texts, 100000);
  EXPECT_GT(values, 5000);  // the texts are not all nonsense
}

}  // namespace
}  // namespace tessera

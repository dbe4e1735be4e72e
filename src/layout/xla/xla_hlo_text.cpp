#include "layout/xla/xla_hlo_text.h"

#include <algorithm>
#include <optional>

#include <c10/util/Exception.h>

#include "layout/arithmetic.h"
#include "layout/cursor.h"

namespace tessera::detail::inline layout_layer {
namespace {

class HloReader {
 public:
  HloReader(std::string_view text, int64_t ndim)
      : cursor_(kFromHloSharding, text), ndim_(ndim) {}

  HloText read() {
    cursor_.expect("{", "'{'");
    refuse("{", "one sharding; a tuple has one per tensor, give each alone");
    refuse("mesh", "devices=[...]; read the named form with from_shardy()");
    HloText hlo;
    read_kind(hlo);
    refuse("shard_as", "'}'; groups of tensors are wishes, no layout");
    refuse("shard_like", "'}'; groups of tensors are wishes, no layout");
    if (cursor_.accept("metadata")) {
      read_metadata(hlo);
    }
    cursor_.expect("}", "'}'");
    cursor_.finish("the end after '}'");
    return hlo;
  }

 private:
  void refuse(std::string_view token, const char* expected) {
    if (cursor_.sees(token)) {
      cursor_.fail(expected);
    }
  }

  void read_kind(HloText& hlo) {
    if (cursor_.accept("devices")) {
      hlo.kind = HloText::Kind::kTiled;
      read_tiled(hlo);
      return;
    }
    cursor_.skip_blanks();
    const size_t begin = cursor_.offset();
    const std::string_view word = cursor_.word();
    if (word == "maximal") {
      hlo.kind = HloText::Kind::kMaximal;
      cursor_.expect("device", "device=");
      cursor_.expect("=", "'='");
      hlo.device = at_least(0, "a device");
    } else if (word == "unreduced") {
      hlo.kind = HloText::Kind::kUnreduced;
    } else if (word != "replicated") {
      cursor_.move_to(begin);
      cursor_.fail(
          "devices=, replicated, unreduced or maximal; manual and unknown "
          "shardings are no layouts");
    }
  }

  void read_tiled(HloText& hlo) {
    cursor_.expect("=", "'='");
    cursor_.expect("[", "'[' and the tile counts");
    const size_t begin = cursor_.offset();
    hlo.tiles = read_list(1, "a tile count", "]");
    if (cursor_.accept("<=")) {
      read_iota(hlo);
    } else {
      read_devices(hlo);
    }
    read_groups(hlo);
    const auto tiles = checked_product(hlo.tiles);
    if (!tiles || tiles != device_count(hlo)) {
      cursor_.move_to(begin);
      cursor_.fail("tile counts whose product is the number of devices");
    }
    const auto groups = static_cast<int64_t>(hlo.groups.size());
    if (static_cast<int64_t>(hlo.tiles.size()) != ndim_ + groups) {
      cursor_.move_to(begin);
      cursor_.fail(
          std::to_string(ndim_ + groups) + " tile counts, one for each of " +
          std::to_string(ndim_) + " tensor dims and " + std::to_string(groups) +
          " of copies or addends");
    }
  }

  static std::optional<int64_t> device_count(const HloText& hlo) {
    return hlo.devices.empty() ? checked_product(hlo.iota_sizes)
                               : static_cast<int64_t>(hlo.devices.size());
  }

  // Several sizes come with the order of their dims; one size has none.
  void read_iota(HloText& hlo) {
    cursor_.expect("[", "'['");
    hlo.iota_sizes = read_list(1, "a size", "]");
    hlo.iota_order = {0};
    if (hlo.iota_sizes.size() == 1) {
      return;
    }
    cursor_.expect("T", "T(...), the order of the sizes");
    cursor_.expect("(", "'('");
    const size_t begin = cursor_.offset();
    hlo.iota_order = read_list(0, "a position", ")");
    if (hlo.iota_order.size() != hlo.iota_sizes.size() ||
        !is_permutation(hlo.iota_order)) {
      cursor_.move_to(begin);
      cursor_.fail("each position of the sizes once");
    }
  }

  void read_devices(HloText& hlo) {
    const size_t begin = cursor_.offset();
    do {
      hlo.devices.push_back(at_least(0, "a device, or <=[...]"));
    } while (cursor_.accept(","));
    if (!is_permutation(hlo.devices)) {
      cursor_.move_to(begin);
      cursor_.fail("each of the devices 0 .. n-1 once");
    }
  }

  static bool is_permutation(std::vector<int64_t> list) {
    std::sort(list.begin(), list.end());
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i] != static_cast<int64_t>(i)) {
        return false;
      }
    }
    return true;
  }

  void read_groups(HloText& hlo) {
    if (cursor_.accept("last_tile_dim_replicate")) {
      hlo.groups = {HloText::Group::kReplicated};
    } else if (cursor_.accept("last_tile_dims")) {
      cursor_.expect("=", "'='");
      cursor_.expect("{", "'{'");
      do {
        if (cursor_.accept("unreduced")) {
          hlo.groups.push_back(HloText::Group::kUnreduced);
        } else {
          cursor_.expect("replicated", "unreduced or replicated");
          hlo.groups.push_back(HloText::Group::kReplicated);
        }
      } while (cursor_.accept(","));
      cursor_.expect("}", "',' or '}'");
    }
  }

  void read_metadata(HloText& hlo) {
    constexpr const char* kExpected =
        "{op_type=\"sdy::reduction_op\" op_name=\"MAX\" or \"MIN\"}";
    for (const std::string_view token :
         {std::string_view("="), std::string_view("{"),
          std::string_view("op_type"), std::string_view("="),
          std::string_view("\"sdy::reduction_op\""),
          std::string_view("op_name"), std::string_view("=")}) {
      cursor_.expect(token, kExpected);
    }
    if (cursor_.accept("\"MAX\"")) {
      hlo.reduce_op = ReduceOp::kMax;
    } else {
      cursor_.expect("\"MIN\"", "\"MAX\" or \"MIN\"");
      hlo.reduce_op = ReduceOp::kMin;
    }
    cursor_.expect("}", "'}'");
  }

  int64_t at_least(int64_t least, const char* expected) {
    cursor_.skip_blanks();
    const size_t begin = cursor_.offset();
    const int64_t value = cursor_.number(expected);
    if (value < least) {
      cursor_.move_to(begin);
      cursor_.fail(
          std::string(expected) + " of at least " + std::to_string(least));
    }
    return value;
  }

  std::vector<int64_t> read_list(
      int64_t least, const char* item, const char* close) {
    std::vector<int64_t> list;
    do {
      list.push_back(at_least(least, item));
    } while (cursor_.accept(","));
    if (!cursor_.accept(close)) {
      cursor_.fail(std::string("',' or '") + close + "'");
    }
    return list;
  }

  Cursor cursor_;
  int64_t ndim_;
};

}  // namespace

HloText parse_hlo_text(std::string_view text, int64_t ndim) {
  return HloReader(text, ndim).read();
}

}  // namespace tessera::detail::inline layout_layer

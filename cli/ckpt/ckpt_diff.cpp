// tessera ckpt diff: which tensors and values of two checkpoints differ, and by
// how much. Formats and parts may differ: contents are compared.
#include <base/escape.h>
#include <io/model/tensor_reader.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cmath>
#include <cstdio>

#include "ckpt.h"
#include "cli/text/progress.h"
#include "cli/text/text_table.h"
#include "compare_elements.h"

namespace tessera::cli {
namespace {

struct DiffOptions {
  std::string a, b;
  bool json = false;
  bool follow_links = false;
  bool progress = false;
};

struct TensorDifference {
  const io::Entry* tensor;
  ElementDifference elements;
};

struct Pair {
  const io::Entry* a;
  const io::Entry* b;
};

struct Differences {
  std::vector<const io::Entry*> only_a, only_b;
  std::vector<Pair> other_type;  // kind, dtype or shape
  std::vector<TensorDifference> tensors;
  std::vector<Pair> values;
  int64_t compared = 0;  // entries that both have

  bool none() const {
    return only_a.empty() && only_b.empty() && other_type.empty() &&
           tensors.empty() && values.empty();
  }
};

ElementDifference compare_tensors(
    const io::Reader& a, const io::Reader& b, const Pair& pair,
    Progress& progress) {
  io::TensorReader left(a, *pair.a), right(b, *pair.b);
  std::vector<char> left_bytes(kPartBytes), right_bytes(kPartBytes);
  ElementDifference difference;
  int64_t done = 0;
  io::for_each_part(
      io::box_of(pair.a->shape), *pair.a->dtype, kPartBytes,
      [&](const io::Box& part) {
        left.read(part, {left_bytes.data()});
        right.read(part, {right_bytes.data()});
        const int64_t count = *io::element_count(part.sizes);
        compare_elements(
            *pair.a->dtype, left_bytes.data(), right_bytes.data(),
            static_cast<size_t>(count), done, difference);
        done += count;
        progress.advance(
            static_cast<uint64_t>(count * io::element_bytes(*pair.a->dtype)));
      });
  left.finish();
  right.finish();
  return difference;
}

Differences find_differences(
    const io::Reader& a, const io::Reader& b, Progress& progress) {
  Differences found;
  for (const io::Entry& entry : a.entries()) {
    const Pair pair{&entry, b.find(entry.name)};
    if (pair.b == nullptr) {
      found.only_a.push_back(&entry);
      progress.advance(entry.is_tensor() ? tensor_bytes(entry) : 0);
      continue;
    }
    ++found.compared;
    if (pair.a->dtype != pair.b->dtype || pair.a->shape != pair.b->shape) {
      found.other_type.push_back(pair);
      progress.advance(entry.is_tensor() ? tensor_bytes(entry) : 0);
    } else if (!entry.is_tensor()) {
      if (!(a.read_value(*pair.a) == b.read_value(*pair.b))) {
        found.values.push_back(pair);
      }
    } else if (const auto difference = compare_tensors(a, b, pair, progress);
               difference.different > 0) {
      found.tensors.push_back({&entry, difference});
    }
  }
  for (const io::Entry& entry : b.entries()) {
    if (a.find(entry.name) == nullptr) {
      found.only_b.push_back(&entry);
    }
  }
  return found;
}

std::string type_text(const io::Entry& entry) {
  return entry.is_tensor()
             ? std::string(info_of(*entry.dtype).name) + io::print(entry.shape)
             : "a value";
}

/// Returns the index of an element by its row-major number.
std::vector<int64_t> index_of(
    int64_t number, const std::vector<int64_t>& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    index[d] = number % shape[d];
    number /= shape[d];
  }
  return index;
}

std::string largest_text(const TensorDifference& difference) {
  const ElementDifference& elements = difference.elements;
  std::string text;
  if (has_integer_difference(*difference.tensor->dtype)) {
    text = std::to_string(elements.largest_integer);
  } else {
    char number[32];
    std::snprintf(number, sizeof(number), "%.3g", elements.largest);
    text = number;
  }
  return text + (elements.nan_on_one_side == 0
                     ? ""
                     : ", " + with_commas(elements.nan_on_one_side) + " NaN");
}

std::string draw_tensors(
    const std::vector<TensorDifference>& tensors, const Terminal& terminal) {
  if (tensors.empty()) {
    return "";
  }
  TextTable table({"tensor", "different", "of", "largest |a - b|", "first at"});
  for (const TensorDifference& difference : tensors) {
    const io::Entry& tensor = *difference.tensor;
    table.add(
        {base::escape(tensor.name), with_commas(difference.elements.different),
         with_commas(*io::element_count(tensor.shape)),
         largest_text(difference),
         io::print(index_of(difference.elements.first, tensor.shape))});
  }
  return table.draw(terminal);
}

std::string differences_text(
    const io::Reader& a, const io::Reader& b, const Differences& found,
    const Terminal& terminal) {
  std::string text;
  for (const io::Entry* entry : found.only_a) {
    text += "only in A: " + base::escape(entry->name) + "\n";
  }
  for (const io::Entry* entry : found.only_b) {
    text += "only in B: " + base::escape(entry->name) + "\n";
  }
  for (const auto& [left, right] : found.other_type) {
    text += "another type: " + base::escape(left->name) + ": " +
            type_text(*left) + ", in B " + type_text(*right) + "\n";
  }
  for (const auto& [left, right] : found.values) {
    text += "another value: " + base::escape(left->name) + ": " +
            shortened(value_json(a.read_value(*left)).dump(), 60) + ", in B " +
            shortened(value_json(b.read_value(*right)).dump(), 60) + "\n";
  }
  const auto differing = static_cast<int64_t>(
      found.other_type.size() + found.values.size() + found.tensors.size());
  return wrapped(text, terminal) + draw_tensors(found.tensors, terminal) +
         (found.none()
              ? "equal: all tensors and values, " +
                    counted(found.compared, "name") + "\n"
              : with_commas(differing) + " of the " +
                    counted(found.compared, "name") + " in both differ\n");
}

Json names_json(const std::vector<const io::Entry*>& entries) {
  Json names = Json::array();
  for (const io::Entry* entry : entries) {
    names.push_back(entry->name);
  }
  return names;
}

Json tensor_json(const TensorDifference& difference) {
  const ElementDifference& elements = difference.elements;
  const io::Entry& tensor = *difference.tensor;
  Json json = {
      {"name", tensor.name},
      {"elements", *io::element_count(tensor.shape)},
      {"different", elements.different},
      {"first", index_of(elements.first, tensor.shape)},
      {"nan_on_one_side", elements.nan_on_one_side}};
  if (has_integer_difference(*tensor.dtype)) {
    json["largest"] = elements.largest_integer;
  } else if (std::isinf(elements.largest)) {
    json["largest"] = "inf";  // JSON has no number for it
  } else {
    json["largest"] = elements.largest;
  }
  return json;
}

Json differences_json(
    const io::Reader& a, const io::Reader& b, const Differences& found) {
  Json json = {
      {"equal", found.none()},
      {"compared", found.compared},
      {"only_a", names_json(found.only_a)},
      {"only_b", names_json(found.only_b)},
      {"types", Json::array()},
      {"tensors", Json::array()},
      {"values", Json::array()}};
  for (const auto& [left, right] : found.other_type) {
    json["types"].push_back(
        {{"name", left->name},
         {"a", type_text(*left)},
         {"b", type_text(*right)}});
  }
  for (const TensorDifference& difference : found.tensors) {
    json["tensors"].push_back(tensor_json(difference));
  }
  for (const auto& [left, right] : found.values) {
    json["values"].push_back(
        {{"name", left->name},
         {"a", value_json(a.read_value(*left))},
         {"b", value_json(b.read_value(*right))}});
  }
  return json;
}

int diff_checkpoints(const DiffOptions& options) {
  const auto a = open_for_command(options.a, options.follow_links);
  const auto b = open_for_command(options.b, options.follow_links);
  Differences found;
  {
    Progress progress("comparing", summary_json(*a)["bytes"], options.progress);
    found = find_differences(*a, *b, progress);
  }
  if (options.json) {
    print_json(differences_json(*a, *b, found));
  } else {
    const Terminal terminal = detect_terminal(STDOUT_FILENO, false);
    print(differences_text(*a, *b, found, terminal));
  }
  return found.none() ? 0 : kExitFailure;
}

}  // namespace

void set_up_ckpt_diff(CLI::App& ckpt, Invocation& invocation) {
  auto options = std::make_shared<DiffOptions>();
  CLI::App* diff = ckpt.add_subcommand(
      "diff", "Compare two checkpoints; exit code 1 where they differ");
  diff->add_option("A", options->a, "a checkpoint of any format")->required();
  diff->add_option("B", options->b, "another one")->required();
  diff->add_flag("--json", options->json, "print JSON");
  add_follow_links(*diff, options->follow_links);
  diff->add_flag(
      "--progress", options->progress,
      "a line for every tenth, on standard error");
  diff->callback([options, &invocation] {
    run_ckpt(invocation, [&] { return diff_checkpoints(*options); });
  });
}

}  // namespace tessera::cli

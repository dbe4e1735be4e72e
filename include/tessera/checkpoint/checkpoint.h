// Checkpoints: saving a StateDict of sharded tensors, and loading it into
// tensors of any layout, mesh and number of ranks.
//
//   using namespace tessera;
//   auto state = checkpoint::state_dict(*model, optimizer);
//   checkpoint::save(state, "runs/step_100");     // 8 ranks
//   checkpoint::load(state, "runs/step_100");     // 4 ranks, other placements
//
// Each rank writes what it holds, copies of an element once; each reads the
// bytes that it needs. A save becomes visible by one rename when all of it is
// on the disk: whenever a rank dies, there is the old checkpoint or the new
// one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>
#include <tessera/checkpoint/file_error.h>
#include <tessera/checkpoint/state_dict.h>
#include <tessera/export.h>

namespace tessera::checkpoint {

/// kTessera: our own, with checksums. kDcp: the folder of PyTorch's
/// torch.distributed.checkpoint. kSafetensors: files of Hugging Face's format,
/// tensors and numbers only.
enum class Format : uint8_t { kTessera, kDcp, kSafetensors };

struct SaveOptions {
  Format format = Format::kTessera;
  /// Replaces a checkpoint at the path, once the new one is complete.
  bool overwrite = false;
};

struct LoadOptions {
  /// Names of the dict that the checkpoint lacks, and the other way round, are
  /// an error.
  bool strict = true;
  /// Converts elements where a tensor has another dtype than the checkpoint;
  /// else that is an error.
  bool convert_dtype = false;
  /// Loads the names that match one of these, `*` for any text; others stay as
  /// they are. None: all.
  std::vector<std::string> only = {};
  /// Takes files of the checkpoint that are symbolic links, as all are in the
  /// cache of Hugging Face. Those of a stranger could lead anywhere.
  bool follow_links = false;
};

/// Calls make() on every rank of the world and returns what it returns here.
/// What it throws on one rank is thrown on all, with the rank. `call` is what
/// the errors begin with. Collective. Example:
///   save(build_state("save", [&] { return read_state(file); }), "runs/a");
TESSERA_API StateDict
build_state(const std::string& call, const std::function<StateDict()>& make);

/// Writes a checkpoint. Collective over the world: all ranks pass the same
/// names, kinds, shapes and numbers; plain tensors are equal on all ranks. What
/// is wrong on one rank is thrown on all, and the path stays as it was. Partial
/// values are an error: redistribute() them first.
/// Example: save({{"model", state_dict(*model)}, {"step", 7}}, "runs/a").
TESSERA_API void save(
    const StateDict& state, const std::string& path,
    const SaveOptions& options = {});

/// Reads a checkpoint of any format into the tensors of a dict, whatever their
/// layout, and its numbers and texts into the dict. Collective over the world.
/// After an error in a data file the tensors hold some old and some new values.
/// Example: load(state, "runs/a", {.only = {"model.*"}}).
TESSERA_API void load(
    StateDict& state, const std::string& path, const LoadOptions& options = {});

/// A name of a checkpoint.
struct Entry {
  std::string name;
  /// Nothing for values that are no tensors.
  std::optional<c10::ScalarType> dtype;
  std::vector<int64_t> shape;
  /// The boxes in which it is stored.
  int64_t chunks = 0;
  int64_t bytes = 0;
  /// Of a value: its text, "3", "'adamw'".
  std::string value;
};

/// Returns what a checkpoint holds; `follow_links` as in LoadOptions. Not
/// collective. Example: for (const Entry& entry : list("runs/a")) ...
TESSERA_API std::vector<Entry> list(
    const std::string& path, bool follow_links = false);

/// Reads all of a checkpoint and throws at the first thing that is damaged.
/// Returns what could not be checked, for want of checksums: "safetensors has
/// no checksums", or nothing. Not collective.
TESSERA_API std::vector<std::string> verify(
    const std::string& path, bool follow_links = false);

/// Returns the path of the latest checkpoint below a folder of steps
/// (save_step()); nothing where there is none. Not collective.
TESSERA_API std::optional<std::string> latest(const std::string& folder);

/// Saves to FOLDER/step_000000000100, makes it the latest, and removes all but
/// the newest `keep` (0: removes none). Returns the path. Collective.
/// Example: save_step(state, "runs", 100, 3).
TESSERA_API std::string save_step(
    const StateDict& state, const std::string& folder, int64_t step,
    int64_t keep = 0, const SaveOptions& options = {});

/// Prints "tessera", "dcp", "safetensors".
TESSERA_API std::string to_string(Format format);

}  // namespace tessera::checkpoint

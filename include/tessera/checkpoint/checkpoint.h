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

namespace tessera::detail::inline checkpoint_layer {
class AsyncSave;
}

namespace tessera::checkpoint {

/// kTessera: our own, with checksums. kDcp: the folder of PyTorch's
/// torch.distributed.checkpoint. kSafetensors: files of Hugging Face's format,
/// tensors and numbers only.
enum class Format : uint8_t { kTessera, kDcp, kSafetensors };

/// How far this rank is in writing its bytes of a checkpoint.
struct Progress {
  int64_t bytes = 0;
  int64_t total = 0;
};

struct SaveOptions {
  Format format = Format::kTessera;
  /// Replaces a checkpoint at the path, once the new one is complete.
  bool overwrite = false;
  /// Called when some more bytes are written, at least every 16 MiB: by save()
  /// on the calling thread, by save_async() on the thread that writes, where it
  /// must not use tensors or ranks. What it throws fails the save.
  std::function<void(const Progress&)> progress = {};
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

/// A save that is written beside the program. A handle: copies stand for the
/// same save, and dropping all of them drops nothing: the next save(),
/// save_async() or load() waits for it and throws its error, and so does the
/// end of the program, which prints the error.
class TESSERA_API Handle {
 public:
  /// Of no save: done() holds, wait() returns.
  Handle() = default;
  explicit Handle(std::shared_ptr<detail::AsyncSave> save);

  /// Returns once the checkpoint is complete and visible; throws, on all ranks,
  /// what went wrong on one, each time: the checkpoint that was there before is
  /// still there. Collective. Example: handle.wait().
  void wait() const;
  /// Tells whether the checkpoint is complete, or the save has failed, which
  /// wait() tells apart. Not collective, and ranks learn it at different times:
  /// do not let collective calls depend on it. Example: if (handle.done()) ...
  bool done() const;
  /// Returns how many of its bytes this rank has written. Not collective.
  Progress progress() const;
  /// Returns the path of the checkpoint; "" of no save.
  const std::string& path() const;

 private:
  std::shared_ptr<detail::AsyncSave> save_;
};

/// Saves as save() does, but returns when this rank's bytes are copied: values
/// that change afterwards are not in the checkpoint. A thread of each rank
/// writes the copy, and the first rank's makes the checkpoint visible, without
/// a further call and without the program's communicators. Collective over the
/// world. The memory of the copy, as large as what this rank writes, is kept
/// for the next call. One save is under way at a time: where the one before is
/// not complete, this waits for it, and throws what went wrong there instead of
/// beginning.
/// Example: auto handle = save_async(state, "runs/a");
TESSERA_API Handle save_async(
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

/// Does as save_step(), written beside the program as save_async() does. The
/// path is Handle::path(). Collective.
/// Example: auto handle = save_step_async(state, "runs", 100, 3).
TESSERA_API Handle save_step_async(
    const StateDict& state, const std::string& folder, int64_t step,
    int64_t keep = 0, const SaveOptions& options = {});

/// Prints "tessera", "dcp", "safetensors".
TESSERA_API std::string to_string(Format format);

}  // namespace tessera::checkpoint

// How a checkpoint becomes visible: all at once.
//
// Note [One rename commits]
// A save writes into a folder beside the checkpoint,
//   runs/.step_100.tessera-saving-0123456789abcdef/
// which no reader looks into. When all its files are on the disk, one rename
// makes it runs/step_100: before it there is the old checkpoint, or none, and
// after it the new one. A crash at any point leaves one of the two, and maybe a
// folder of the temporary name, which the next save removes.
//
// Where there is an old checkpoint, the two folders exchange their names
// (renameat2 with RENAME_EXCHANGE), and the old one is removed afterwards. It
// is as atomic as a rename, keeps the checkpoint at the path that the user
// gave, in a form that PyTorch's and Hugging Face's loaders take, and needs no
// pointer file that could lead elsewhere. File systems without it (some network
// ones) get two renames:
//   step_100 -> .step_100.tessera-previous, then the new one -> step_100
// Between them the path is missing, and readers take .tessera-previous in its
// place: still the old checkpoint until the second rename.
//
// Who saves holds the lock of the temporary folder. Locks end with their
// process, so a folder that is locked is a save under way, and one that is not
// is a leftover.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <io/files/folder.h>

namespace tessera::detail::inline io_layer {

/// Returns the name of the folder in which a save writes.
std::string saving_name(std::string_view checkpoint, std::string_view token);
/// Returns the name under which an old checkpoint waits for the new one.
std::string previous_name(std::string_view checkpoint);
/// Returns 16 random hexadecimal digits.
std::string make_token();

/// Throws io::Error (kUsage) unless what has this name can be removed: a
/// safetensors file, or a folder of files that a checkpoint format writes and
/// nothing else. What users put beside them is never removed.
void check_removable(const Folder& parent, const std::string& name);
/// Removes it, as far as check_removable() allows.
void remove_checkpoint(const Folder& parent, const std::string& name);

/// Removes what crashed saves of a checkpoint have left; puts an old checkpoint
/// back that was on its way out. Throws where a save is under way.
void clean_leftovers(const Folder& parent, const std::string& checkpoint);

/// Gives the folder `saved` the name `checkpoint`, in the place of what has it.
/// Returns the name that the old one has now; "" where there was none.
std::string publish(
    const Folder& parent, const std::string& saved,
    const std::string& checkpoint, bool overwrite);

/// Returns the name to read a checkpoint by: its own, or previous_name().
std::string readable_name(const Folder& parent, const std::string& checkpoint);

}  // namespace tessera::detail::inline io_layer

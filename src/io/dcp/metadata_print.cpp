// print_dcp_metadata(): the objects that PyTorch's loader expects.
#include <io/dcp/metadata.h>
#include <io/dcp/pickle_writer.h>

namespace tessera::detail::inline io_layer {

namespace {

constexpr std::string_view kModule = "torch.distributed.checkpoint.metadata";
constexpr std::string_view kFilesModule =
    "torch.distributed.checkpoint.filesystem";

void write_properties(PickleWriter& out, io::Dtype dtype) {
  out.global(kModule, "TensorProperties").new_object().begin_tuple();
  out.global("torch", info_of(dtype).name);
  out.global("torch.serialization", "_get_layout").begin_tuple();
  out.string("torch.strided").end_tuple().reduce();
  out.boolean(false);
  out.global(kModule, "_MEM_FORMAT_ENCODING").begin_tuple();
  out.integer(0).end_tuple().reduce();
  out.boolean(false).end_tuple().build();
}

void write_tensor(PickleWriter& out, const io::Entry& entry) {
  out.global(kModule, "TensorStorageMetadata").new_object().begin_dict();
  out.string("properties");
  write_properties(out, *entry.dtype);
  out.string("size").torch_size(entry.shape).string("chunks").begin_list();
  for (const io::Chunk& chunk : entry.chunks) {
    out.global(kModule, "ChunkStorageMetadata").new_object().begin_dict();
    out.string("offsets").torch_size(chunk.box.offsets);
    out.string("sizes").torch_size(chunk.box.sizes).end_dict().build();
  }
  out.end_list().end_dict().build();
}

void write_path_tuple(PickleWriter& out, const io::Path& path) {
  out.begin_tuple();
  for (const io::PathPart& part : path) {
    if (const auto* key = std::get_if<std::string>(&part)) {
      out.string(*key);
    } else {
      out.integer(std::get<int64_t>(part));
    }
  }
  out.end_tuple();
}

void write_storage(
    PickleWriter& out, const io::Contents& contents,
    const io::StoredBytes& stored) {
  out.global(kFilesModule, "_StorageInfo").new_object().begin_dict();
  out.string("relative_path").string(contents.files[stored.file].name);
  out.string("offset").integer(static_cast<int64_t>(stored.offset));
  out.string("length").integer(static_cast<int64_t>(stored.bytes));
  out.end_dict().build();
}

void write_index(PickleWriter& out, const std::string& name) {
  out.global(kModule, "MetadataIndex").new_object().begin_dict();
  out.string("fqn").string(name);
}

void write_storage_of(
    PickleWriter& out, const io::Contents& contents, const io::Entry& entry) {
  if (!entry.is_tensor()) {
    write_index(out, entry.name);
    out.string("index").none().end_dict().build();
    write_storage(out, contents, *entry.stored_value);
  }
  for (size_t i = 0; i < entry.chunks.size(); ++i) {
    write_index(out, entry.name);
    out.string("index").integer(static_cast<int64_t>(i));
    out.string("offset").torch_size(entry.chunks[i].box.offsets);
    out.end_dict().build();
    write_storage(out, contents, entry.chunks[i].stored);
  }
}

}  // namespace

std::string print_dcp_metadata(const io::Contents& contents) {
  PickleWriter out;
  out.global(kModule, "Metadata").new_object().begin_dict();
  out.string("state_dict_metadata").begin_dict();
  for (const io::Entry& entry : contents.entries) {
    out.string(entry.name);
    if (entry.is_tensor()) {
      write_tensor(out, entry);
    } else {
      out.global(kModule, "BytesStorageMetadata").new_object();
    }
  }
  out.end_dict().string("planner_data").begin_dict();
  for (const io::Entry& entry : contents.entries) {
    out.string(entry.name);
    write_path_tuple(out, entry.path);
  }
  out.end_dict().string("storage_data").begin_dict();
  for (const io::Entry& entry : contents.entries) {
    write_storage_of(out, contents, entry);
  }
  out.end_dict().string("storage_meta").none();
  out.string("version").string("1.0.0").end_dict().build();
  return out.take();
}

}  // namespace tessera::detail::inline io_layer

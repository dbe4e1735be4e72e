#include <io/model/ticket.h>

#include <base/json.h>
#include <io/files/error.h>
#include <io/model/entry_json.h>

namespace tessera::detail::inline io_layer {

std::string encode_ticket(const io::SaveTicket& ticket) {
  base::JsonWriter out;
  out.begin_object().key("path").string(ticket.path);
  out.key("folder").string(ticket.folder).key("token").string(ticket.token);
  out.key("format").string(name_of(ticket.format));
  out.key("ranks").integer(ticket.ranks);
  out.key("one_file").boolean(ticket.is_one_file).end_object();
  return out.take();
}

io::SaveTicket decode_ticket(std::string_view bytes) {
  io::SaveTicket ticket;
  try {
    base::JsonReader in(bytes);
    in.begin_object();
    expect_key(in, "path");
    ticket.path = in.read_string();
    expect_key(in, "folder");
    ticket.folder = in.read_string();
    expect_key(in, "token");
    ticket.token = in.read_string();
    expect_key(in, "format");
    ticket.format = io::format_named(in.read_string());
    expect_key(in, "ranks");
    ticket.ranks = in.read_integer();
    expect_key(in, "one_file");
    ticket.is_one_file = in.read_bool();
    expect_end(in);
    in.finish();
  } catch (const base::JsonError& error) {
    io::throw_usage(
        "save", std::string("this is no ticket of a save: ") + error.what());
  }
  return ticket;
}

}  // namespace tessera::detail::inline io_layer

#include <io/commit/checkpoint_names.h>

#include <algorithm>

namespace tessera::detail::inline io_layer {

namespace {

constexpr std::string_view kDigits = "0123456789";

// Tells whether text is PREFIX digits MIDDLE digits SUFFIX.
bool is_numbered(
    std::string_view text, std::string_view prefix, std::string_view middle,
    std::string_view suffix) {
  const auto skip_digits = [&] {
    const size_t end = std::min(text.find_first_not_of(kDigits), text.size());
    text.remove_prefix(end);
    return end > 0;
  };
  const auto skip = [&](std::string_view part) {
    const bool starts = text.starts_with(part);
    text.remove_prefix(starts ? part.size() : 0);
    return starts;
  };
  return skip(prefix) && skip_digits() && skip(middle) && skip_digits() &&
         text == suffix;
}

}  // namespace

bool is_tessera_data_name(std::string_view name) {
  return is_numbered(name, "rank_", ".", ".bin");
}

bool is_dcp_data_name(std::string_view name) {
  return is_numbered(name, "__", "_", kDcpSuffix);
}

bool is_part_name(std::string_view name) {
  constexpr std::string_view kPrefix = "rank_", kSuffix = ".part";
  return name.size() > kPrefix.size() + kSuffix.size() &&
         name.starts_with(kPrefix) && name.ends_with(kSuffix) &&
         name.find_first_not_of(kDigits, kPrefix.size()) ==
             name.size() - kSuffix.size();
}

bool is_checkpoint_file(std::string_view name) {
  return name == kManifestName || is_tessera_data_name(name) ||
         name == kDcpMetadataName || name == ".metadata.tmp" ||
         is_dcp_data_name(name) || is_part_name(name) ||
         name.ends_with(kSafetensorsSuffix) || name.ends_with(kIndexSuffix);
}

}  // namespace tessera::detail::inline io_layer

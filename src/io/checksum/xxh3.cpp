#include <io/checksum/xxh3.h>
#include <io/checksum/xxh3_avx2.h>

// The whole library in this one source, so that users of ours need not link it.
#define XXH_INLINE_ALL  // NOLINT(readability-identifier-naming): its own
#include <xxhash.h>

namespace tessera::detail::inline io_layer {

namespace {

bool has_avx2() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
#else
  return false;
#endif
}

}  // namespace

struct Xxh3::State {
  XXH3_state_t value;
};

uint64_t xxh3(const void* bytes, size_t size) {
  return has_avx2() ? xxh3_avx2(bytes, size) : XXH3_64bits(bytes, size);
}

Xxh3::Xxh3() : state_(std::make_unique<State>()) {
  reset();
}
Xxh3::Xxh3(Xxh3&&) noexcept = default;
Xxh3& Xxh3::operator=(Xxh3&&) noexcept = default;
Xxh3::~Xxh3() = default;

void Xxh3::update(const void* bytes, size_t size) {
  if (size == 0) {
    return;
  }
  if (has_avx2()) {
    update_xxh3_avx2(&state_->value, bytes, size);
  } else {
    XXH3_64bits_update(&state_->value, bytes, size);
  }
}

uint64_t Xxh3::value() const {
  return XXH3_64bits_digest(&state_->value);
}

void Xxh3::reset() {
  XXH3_64bits_reset(&state_->value);
}

std::string print_hex64(uint64_t value) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text(16, '0');
  for (size_t i = 16; i-- > 0; value >>= 4) {
    text[i] = kHex[value & 15];
  }
  return text;
}

bool parse_hex64(std::string_view text, uint64_t* value) {
  *value = 0;
  for (const char c : text) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && (c < 'a' || c > 'f')) {
      return false;
    }
    *value =
        *value * 16 + static_cast<uint64_t>(is_digit ? c - '0' : c - 'a' + 10);
  }
  return text.size() == 16;
}

}  // namespace tessera::detail::inline io_layer

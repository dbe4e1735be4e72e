// Damaged bytes of every kind: a ValueError each time, nothing else.
#include <cstdlib>
#include <random>

#include <gtest/gtest.h>

#include "sharded_tensor/format/codec.h"
#include "sharded_tensor/format/saved_examples.h"
#include "sharded_tensor/spec/expect_torch_error.h"

namespace tessera::sharded_tensor {
namespace {

constexpr int64_t kStrings = 100000;

// A fixed seed, or that of TESSERA_SEED.
uint64_t seed_of_run() {
  const char* given = std::getenv("TESSERA_SEED");
  const uint64_t seed = given != nullptr ? std::stoull(given) : 20240607;
  std::cout << "TESSERA_SEED=" << seed << "\n";
  return seed;
}

class Damage {
 public:
  explicit Damage(uint64_t seed) : random_(seed) {}

  size_t below(size_t limit) {
    return std::uniform_int_distribution<size_t>(0, limit - 1)(random_);
  }

  /// Returns `text` after 1 to 4 changes, some of them taken from `other`.
  std::string damaged(std::string text, const std::string& other) {
    for (size_t changes = 1 + below(4); changes > 0; --changes) {
      change(text, other);
    }
    return text;
  }

 private:
  std::string noise() {
    std::string bytes(1 + below(16), '\0');
    for (char& c : bytes) {
      c = static_cast<char>(below(256));
    }
    return bytes;
  }

  void change(std::string& text, const std::string& other) {
    if (text.empty()) {
      text = noise();
      return;
    }
    const size_t at = below(text.size());
    const size_t span = 1 + below(std::min<size_t>(16, text.size() - at));
    switch (below(8)) {
      case 0:
        text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 1:
        text.resize(at);
        break;
      case 2:
        text.insert(at, noise());
        break;
      case 3:
        std::swap(text[at], text[below(text.size())]);
        break;
      case 4:
        text += noise();
        break;
      case 5:
        text = text.substr(0, at) + other.substr(below(other.size()));
        break;
      case 6:
        text.erase(at, span);
        break;
      default:
        text.insert(at, text.substr(at, span));
        break;
    }
  }

  std::mt19937_64 random_;
};

enum class Outcome { kRefused, kRead };

// Reads a text as a kind; any error but a ValueError fails the test. What is
// read must be written as it was found.
Outcome read_as(const SavedKind& kind, const std::string& text) {
  try {
    EXPECT_EQ(kind.rewrite(text), text);
    return Outcome::kRead;
  } catch (const c10::ValueError&) {
    return Outcome::kRefused;
  } catch (const std::exception& error) {
    ADD_FAILURE() << kind.name << ": another type: " << error.what();
    return Outcome::kRefused;
  }
}

TEST(Corrupted, BytesAreAlwaysRefused) {
  Damage damage(seed_of_run());
  const std::vector<Saved> examples = saved_examples();
  int64_t strings = 0;
  for (int64_t i = 0; strings < kStrings && !HasFailure(); ++i) {
    const Saved& one = examples[static_cast<size_t>(i) % examples.size()];
    const Saved& other = examples[damage.below(examples.size())];
    const std::string text = damage.damaged(one.text, other.text);
    // Changes may undo each other, or make another example.
    const bool is_whole = std::any_of(
        examples.begin(), examples.end(),
        [&](const Saved& example) { return example.text == text; });
    if (is_whole) {
      continue;
    }
    ++strings;
    EXPECT_EQ(read_as(saved_kinds()[one.kind], text), Outcome::kRefused);
  }
  EXPECT_EQ(strings, kStrings);
}

TEST(Corrupted, BytesOfAnotherKindAreRefused) {
  for (const Saved& saved : saved_examples()) {
    for (size_t kind = 0; kind < saved_kinds().size(); ++kind) {
      EXPECT_EQ(
          read_as(saved_kinds()[kind], saved.text),
          kind == saved.kind ? Outcome::kRead : Outcome::kRefused);
    }
  }
}

TEST(Corrupted, EveryCutAndEveryFlippedBitIsRefused) {
  for (const Saved& saved : saved_examples()) {
    const SavedKind& kind = saved_kinds()[saved.kind];
    for (size_t at = 0; at < saved.text.size(); ++at) {
      EXPECT_EQ(read_as(kind, saved.text.substr(0, at)), Outcome::kRefused);
      for (int bit = 0; bit < 8; ++bit) {
        std::string text = saved.text;
        text[at] = static_cast<char>(text[at] ^ (1 << bit));
        EXPECT_EQ(read_as(kind, text), Outcome::kRefused);
      }
    }
  }
}

// Past the checksum, some payloads are values; all others are refused.
TEST(Corrupted, PayloadsAreReadAsTheyStandOrRefused) {
  constexpr size_t kHead = 16;
  constexpr size_t kTail = 8;
  Damage damage(seed_of_run());
  const std::vector<Saved> examples = saved_examples();
  const auto payload = [&](const Saved& saved) {
    return saved.text.substr(kHead, saved.text.size() - kHead - kTail);
  };
  int64_t read = 0;
  for (int64_t i = 0; i < kStrings && !HasFailure(); ++i) {
    const Saved& one = examples[static_cast<size_t>(i) % examples.size()];
    const Saved& other = examples[damage.below(examples.size())];
    const std::string text = format::frame(
        static_cast<format::Kind>(one.kind + 1),
        damage.damaged(payload(one), payload(other)));
    read += read_as(saved_kinds()[one.kind], text) == Outcome::kRead;
  }
  EXPECT_GT(read, kStrings / 1000) << "no damaged payload came through";
}

}  // namespace
}  // namespace tessera::sharded_tensor

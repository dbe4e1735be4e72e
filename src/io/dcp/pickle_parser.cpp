#include <io/dcp/pickle_parser.h>

#include <io/dcp/pickle_opcodes.h>
#include <io/files/error.h>
#include <io/model/limits.h>

namespace tessera::detail::inline io_layer {

namespace {

// Offsets into the text have 32 bits; so have numbers of nodes, three of which
// an opcode makes at most.
constexpr size_t kMostBytes = size_t{1} << 30;
static_assert(kMostBytes >= kMostDcpMetadataBytes);

using NodeId = uint32_t;

// Runs over the opcodes with Python's stack, marks and memo.
class PickleParser {
 public:
  PickleParser(
      const std::string& path, std::string_view bytes, PickleNodes& out)
      : path_(path), in_(bytes), out_(out) {}

  NodeId run() {
    if (in_.size() > kMostBytes) {
      fail(
          "has " + std::to_string(in_.size()) +
          " bytes; at most 2^30 are read");
    }
    for (;;) {
      opcode_at_ = at_;
      const auto opcode = byte();
      if (opcode == pickle_op::kStop) {
        break;
      }
      step(opcode);
    }
    if (stack_.size() != 1 || !marks_.empty()) {
      fail("ends with " + std::to_string(stack_.size()) + " values");
    }
    if (at_ != in_.size()) {
      fail("goes on after its end");
    }
    return stack_[0];
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    io::throw_corrupt(
        path_, "the pickle " + problem + "; opcode at byte " +
                   std::to_string(opcode_at_));
  }

  std::string_view take(uint64_t size) {
    if (size > in_.size() - at_) {
      fail("ends early");
    }
    const std::string_view taken = in_.substr(at_, size);
    at_ += size;
    return taken;
  }
  uint8_t byte() { return static_cast<uint8_t>(take(1)[0]); }
  uint64_t little_endian(size_t size) {
    uint64_t value = 0;
    const std::string_view bytes = take(size);
    for (size_t i = size; i-- > 0;) {
      value = value << 8 | static_cast<uint8_t>(bytes[i]);
    }
    return value;
  }
  std::string_view line() {
    const size_t end = in_.find('\n', at_);
    if (end == in_.npos) {
      fail("ends early");
    }
    const std::string_view text = take(end - at_);
    take(1);
    return text;
  }

  PickleKind kind_of(NodeId node) const { return out_.nodes[node].kind; }

  NodeId add(PickleKind kind, int64_t integer = 0) {
    PickleNode node;
    node.kind = kind;
    node.integer = integer;
    out_.nodes.push_back(node);
    return static_cast<NodeId>(out_.nodes.size() - 1);
  }
  NodeId add_text(PickleKind kind, std::string_view text) {
    const auto begin = static_cast<int64_t>(text.data() - in_.data());
    return add(kind, begin << 32 | static_cast<int64_t>(text.size()));
  }
  void append(NodeId parent, NodeId child) {
    PickleNode& node = out_.nodes[parent];
    const auto link = static_cast<uint32_t>(out_.links.size());
    out_.links.push_back({child, PickleNode::kNone});
    if (node.count == 0) {
      node.first = link;
    } else {
      out_.links[node.last].next = link;
    }
    node.last = link;
    ++node.count;
  }
  NodeId add_pair(PickleKind kind, NodeId a, NodeId b) {
    const NodeId node = add(kind);
    append(node, a);
    append(node, b);
    return node;
  }

  void push(NodeId node) { stack_.push_back(node); }
  // Values below a mark are out of reach until the mark is gone.
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  NodeId pop() {
    const NodeId node = top();
    stack_.pop_back();
    return node;
  }
  NodeId top() const {
    if (stack_.size() <= floor()) {
      fail("takes a value where there is none");
    }
    return stack_.back();
  }
  size_t pop_mark() {
    if (marks_.empty()) {
      fail("takes a mark where there is none");
    }
    const size_t mark = marks_.back();
    marks_.pop_back();
    return mark;
  }

  void make_tuple(size_t first) {
    const NodeId tuple = add(PickleKind::kTuple);
    for (size_t i = first; i < stack_.size(); ++i) {
      append(tuple, stack_[i]);
    }
    stack_.resize(first);
    push(tuple);
  }
  void make_short_tuple(size_t size) {
    if (stack_.size() - floor() < size) {
      fail("takes a value where there is none");
    }
    make_tuple(stack_.size() - size);
  }

  void add_items(size_t first, bool in_pairs) {
    if (first == 0 || first <= floor() ||
        (in_pairs && (stack_.size() - first) % 2 != 0)) {
      fail("adds to nothing, or a key without a value");
    }
    const NodeId target = stack_[first - 1];
    const PickleKind kind = kind_of(target);
    const PickleKind plain = in_pairs ? PickleKind::kDict : PickleKind::kList;
    if (kind != plain && kind != PickleKind::kCall &&
        kind != PickleKind::kObject) {
      fail("adds elements to what is no list or dict");
    }
    for (size_t i = first; i < stack_.size(); ++i) {
      append(target, stack_[i]);
    }
    stack_.resize(first);
  }
  void add_last(size_t count, bool in_pairs) {
    if (stack_.size() - floor() < count) {
      fail("takes a value where there is none");
    }
    add_items(stack_.size() - count, in_pairs);
  }

  void make_global(NodeId module, NodeId name) {
    if (kind_of(module) != PickleKind::kString ||
        kind_of(name) != PickleKind::kString) {
      fail("names a global by what is no text");
    }
    push(add_pair(PickleKind::kGlobal, module, name));
  }
  void make_call(PickleKind kind) {
    const NodeId arguments = pop();
    const NodeId callable = pop();
    if (kind_of(callable) != PickleKind::kGlobal ||
        kind_of(arguments) != PickleKind::kTuple) {
      fail("calls what is no global, or without a tuple of arguments");
    }
    push(add_pair(kind, callable, arguments));
  }
  void build() {
    const NodeId state = pop();
    PickleNode& node = out_.nodes[top()];
    if ((node.kind != PickleKind::kCall && node.kind != PickleKind::kObject) ||
        node.state != PickleNode::kNone) {
      fail("gives a state to what has none");
    }
    node.state = state;
  }

  // Python numbers its memo from 0 on, so an index is never as large as the
  // number of bytes before it.
  void memorize(uint64_t index) {
    if (index >= opcode_at_ + 1) {
      fail("leaves gaps in its memo");
    }
    if (index >= memo_.size()) {
      memo_.resize(index + 1, PickleNode::kNone);
    }
    memo_count_ += memo_[index] == PickleNode::kNone ? 1 : 0;
    memo_[index] = top();
  }
  void recall(uint64_t index) {
    if (index >= memo_.size() || memo_[index] == PickleNode::kNone) {
      fail("recalls what was not memorized");
    }
    push(memo_[index]);
  }

  void push_long(std::string_view bytes) {
    if (bytes.size() > 8) {
      push(add_text(PickleKind::kBigInteger, bytes));
      return;
    }
    uint64_t value = 0;
    for (size_t i = bytes.size(); i-- > 0;) {
      value = value << 8 | static_cast<uint8_t>(bytes[i]);
    }
    const size_t unused = 64 - 8 * bytes.size();
    const int64_t extended =
        bytes.empty() ? 0 : static_cast<int64_t>(value << unused) >> unused;
    push(add(PickleKind::kInteger, extended));
  }
  void push_float() {
    uint64_t bits = 0;
    for (const char c : take(8)) {
      bits = bits << 8 | static_cast<uint8_t>(c);
    }
    push(add(PickleKind::kFloat, static_cast<int64_t>(bits)));
  }

  void step(uint8_t opcode);
  void step_text(uint8_t opcode);
  void step_container(uint8_t opcode);

  const std::string& path_;
  std::string_view in_;
  PickleNodes& out_;
  size_t at_ = 0;
  size_t opcode_at_ = 0;
  uint64_t memo_count_ = 0;
  std::vector<NodeId> stack_;
  std::vector<size_t> marks_;
  std::vector<NodeId> memo_;
};

void PickleParser::step(uint8_t opcode) {
  switch (opcode) {
    case pickle_op::kProto:
      if (const uint8_t protocol = byte(); protocol < 2 || protocol > 5) {
        fail(
            "is of protocol " + std::to_string(protocol) + "; 2 to 5 are read");
      }
      return;
    case pickle_op::kFrame:
      if (little_endian(8) > in_.size() - at_) {
        fail("ends early");
      }
      return;
    case pickle_op::kNone:
      return push(add(PickleKind::kNone));
    case pickle_op::kNewTrue:
      return push(add(PickleKind::kBool, 1));
    case pickle_op::kNewFalse:
      return push(add(PickleKind::kBool, 0));
    case pickle_op::kBinInt:
      return push(
          add(PickleKind::kInteger, static_cast<int32_t>(little_endian(4))));
    case pickle_op::kBinInt1:
      return push(add(PickleKind::kInteger, byte()));
    case pickle_op::kBinInt2:
      return push(
          add(PickleKind::kInteger, static_cast<int64_t>(little_endian(2))));
    case pickle_op::kLong1:
      return push_long(take(byte()));
    case pickle_op::kLong4:
      return push_long(take(little_endian(4)));
    case pickle_op::kBinFloat:
      return push_float();
    case pickle_op::kBinPut:
      return memorize(byte());
    case pickle_op::kLongBinPut:
      return memorize(little_endian(4));
    case pickle_op::kMemoize:
      return memorize(memo_count_);
    case pickle_op::kBinGet:
      return recall(byte());
    case pickle_op::kLongBinGet:
      return recall(little_endian(4));
    default:
      return step_text(opcode);
  }
}

void PickleParser::step_text(uint8_t opcode) {
  switch (opcode) {
    case pickle_op::kShortBinUnicode:
      return push(add_text(PickleKind::kString, take(byte())));
    case pickle_op::kBinUnicode:
      return push(add_text(PickleKind::kString, take(little_endian(4))));
    case pickle_op::kBinUnicode8:
      return push(add_text(PickleKind::kString, take(little_endian(8))));
    case pickle_op::kShortBinBytes:
      return push(add_text(PickleKind::kBytes, take(byte())));
    case pickle_op::kBinBytes:
      return push(add_text(PickleKind::kBytes, take(little_endian(4))));
    case pickle_op::kBinBytes8:
      return push(add_text(PickleKind::kBytes, take(little_endian(8))));
    case pickle_op::kGlobal: {
      const NodeId module = add_text(PickleKind::kString, line());
      return make_global(module, add_text(PickleKind::kString, line()));
    }
    case pickle_op::kStackGlobal: {
      const NodeId name = pop();
      return make_global(pop(), name);
    }
    default:
      return step_container(opcode);
  }
}

void PickleParser::step_container(uint8_t opcode) {
  switch (opcode) {
    case pickle_op::kMark:
      return marks_.push_back(stack_.size());
    case pickle_op::kEmptyTuple:
      return push(add(PickleKind::kTuple));
    case pickle_op::kEmptyList:
      return push(add(PickleKind::kList));
    case pickle_op::kEmptyDict:
      return push(add(PickleKind::kDict));
    case pickle_op::kTuple:
      return make_tuple(pop_mark());
    case pickle_op::kTuple1:
      return make_short_tuple(1);
    case pickle_op::kTuple2:
      return make_short_tuple(2);
    case pickle_op::kTuple3:
      return make_short_tuple(3);
    case pickle_op::kAppend:
      return add_last(1, false);
    case pickle_op::kAppends:
      return add_items(pop_mark(), false);
    case pickle_op::kSetItem:
      return add_last(2, true);
    case pickle_op::kSetItems:
      return add_items(pop_mark(), true);
    case pickle_op::kNewObj:
      return make_call(PickleKind::kObject);
    case pickle_op::kReduce:
      return make_call(PickleKind::kCall);
    case pickle_op::kBuild:
      return build();
    case pickle_op::kBinPersId: {
      const NodeId id = pop();
      const NodeId node = add(PickleKind::kPersistent);
      append(node, id);
      return push(node);
    }
    default:
      break;
  }
  fail(
      "has the opcode " + std::to_string(opcode) +
      ", which checkpoints do not need");
}

}  // namespace

uint32_t parse_pickle(
    const std::string& path, std::string_view bytes, PickleNodes& out) {
  return PickleParser(path, bytes, out).run();
}

}  // namespace tessera::detail::inline io_layer

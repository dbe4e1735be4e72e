#include <checkpoint/leaves.h>

#include <algorithm>
#include <unordered_set>

#include <c10/util/Exception.h>
#include <io/model/value_json.h>

namespace tessera::detail::inline checkpoint_layer {

using checkpoint::StateDict;
using checkpoint::StateValue;
using Kind = StateValue::Kind;

namespace {

bool is_entered(const StateValue& value) {
  const auto holds = [](const StateValue& item) {
    return item.kind() == Kind::kTensor ||
           item.kind() == Kind::kShardedTensor || item.kind() == Kind::kDict ||
           is_entered(item);
  };
  return value.kind() == Kind::kList &&
         std::any_of(value.to_list().begin(), value.to_list().end(), holds);
}

class Flattening {
 public:
  void add(const std::string& name, const io::Path& path, StateValue& value) {
    if (value.kind() == Kind::kDict && !value.to_dict().empty()) {
      for (auto& [key, item] : value.to_dict()) {
        add_below(name, path, key, key, item);
      }
    } else if (is_entered(value)) {
      int64_t position = 0;
      for (StateValue& item : value.to_list()) {
        add_below(name, path, std::to_string(position), position, item);
        ++position;
      }
    } else {
      leaves.push_back({name, path, &value});
    }
  }

  std::vector<Leaf> leaves;

 private:
  void add_below(
      const std::string& name, io::Path path, const std::string& key,
      io::PathPart part, StateValue& item) {
    path.push_back(std::move(part));
    add(name.empty() ? key : name + "." + key, path, item);
  }
};

}  // namespace

bool Leaf::is_tensor() const {
  return value->kind() == Kind::kTensor ||
         value->kind() == Kind::kShardedTensor;
}

std::vector<Leaf> leaves_of(const std::string& call, StateDict& dict) {
  Flattening flattening;
  for (auto& [name, value] : dict) {
    flattening.add(name, {name}, value);
  }
  std::unordered_set<std::string> names;
  for (const Leaf& leaf : flattening.leaves) {
    TORCH_CHECK_VALUE(
        names.insert(leaf.name).second, call, ": two values are called '",
        leaf.name, "'; rename one, since a dot in a name reads as nesting");
  }
  return std::move(flattening.leaves);
}

io::Value to_io(const StateValue& value) {
  switch (value.kind()) {
    case Kind::kNone:
      return {};
    case Kind::kBool:
      return io::Value::boolean(value.to_bool());
    case Kind::kInteger:
      return io::Value::integer(value.to_int());
    case Kind::kFloat:
      return io::Value::floating(value.to_double());
    case Kind::kString:
      return io::Value::string(value.to_string());
    case Kind::kBytes:
      return io::Value::bytes(value.to_bytes());
    case Kind::kList: {
      std::vector<io::Value> items;
      for (const StateValue& item : value.to_list()) {
        items.push_back(to_io(item));
      }
      return value.is_tuple() ? io::Value::tuple(std::move(items))
                              : io::Value::list(std::move(items));
    }
    case Kind::kDict: {
      std::vector<io::Value> items;
      for (const auto& [name, item] : value.to_dict()) {
        items.push_back(io::Value::string(name));
        items.push_back(to_io(item));
      }
      return io::Value::dict(std::move(items));
    }
    case Kind::kTensor:
    case Kind::kShardedTensor:
      break;
  }
  TORCH_INTERNAL_ASSERT(false, "a tensor is no plain value");
}

StateValue from_io(const io::Value& value) {
  switch (value.kind()) {
    case io::Value::Kind::kNone:
      return {};
    case io::Value::Kind::kBool:
      return value.as_bool();
    case io::Value::Kind::kInteger:
      return value.as_integer();
    case io::Value::Kind::kFloat:
      return value.as_float();
    case io::Value::Kind::kString:
      return value.as_string();
    case io::Value::Kind::kBytes:
      return checkpoint::Bytes{value.as_bytes()};
    case io::Value::Kind::kList:
    case io::Value::Kind::kTuple: {
      StateValue::List list;
      for (const io::Value& item : value.items()) {
        list.push_back(from_io(item));
      }
      return value.kind() == io::Value::Kind::kTuple
                 ? StateValue::tuple(std::move(list))
                 : StateValue(std::move(list));
    }
    case io::Value::Kind::kDict: {
      StateDict dict;
      const std::vector<io::Value>& pairs = value.pairs();
      for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
        const io::Value& key = pairs[i];
        dict.set(
            key.kind() == io::Value::Kind::kInteger
                ? std::to_string(key.as_integer())
                : key.as_string(),
            from_io(pairs[i + 1]));
      }
      return dict;
    }
    case io::Value::Kind::kOpaque:
      break;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "an object of Python cannot be read: ", value.opaque_text());
}

std::string text_of(const io::Value& value) {
  if (value.kind() == io::Value::Kind::kOpaque) {
    return value.opaque_text();
  }
  base::JsonWriter out;
  write_value(out, value);
  return out.take();
}

}  // namespace tessera::detail::inline checkpoint_layer

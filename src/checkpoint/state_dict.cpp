#include <tessera/checkpoint/state_dict.h>

#include <algorithm>
#include <sstream>

#include <c10/util/Exception.h>

namespace tessera::checkpoint {

namespace {

std::string names_of(const StateDict& dict) {
  std::ostringstream out;
  size_t count = 0;
  for (const auto& [name, value] : dict) {
    if (count == 8) {
      out << ", ... (" << dict.size() << " in all)";
      break;
    }
    out << (count++ == 0 ? "" : ", ") << "'" << name << "'";
  }
  return out.str();
}

}  // namespace

std::string_view describe(StateValue::Kind kind) {
  switch (kind) {
    case StateValue::Kind::kNone:
      return "nothing";
    case StateValue::Kind::kBool:
      return "a bool";
    case StateValue::Kind::kInteger:
      return "an integer";
    case StateValue::Kind::kFloat:
      return "a float";
    case StateValue::Kind::kString:
      return "a string";
    case StateValue::Kind::kBytes:
      return "bytes";
    case StateValue::Kind::kTensor:
      return "a tensor";
    case StateValue::Kind::kShardedTensor:
      return "a ShardedTensor";
    case StateValue::Kind::kList:
      return "a list";
    case StateValue::Kind::kDict:
      return "a dict";
  }
  return "";
}

StateValue::StateValue(StateDict dict)
    : value_(std::make_shared<StateDict>(std::move(dict))) {}

StateValue StateValue::tuple(List list) {
  StateValue result = std::move(list);
  result.is_tuple_ = true;
  return result;
}

template <class T>
const T& StateValue::get(Kind wanted) const {
  const T* value = std::get_if<T>(&value_);
  TORCH_CHECK_TYPE(
      value != nullptr, "StateValue: asked for ", describe(wanted),
      ", and it is ", describe(kind()));
  return *value;
}

bool StateValue::to_bool() const {
  return get<bool>(Kind::kBool);
}

int64_t StateValue::to_int() const {
  return get<int64_t>(Kind::kInteger);
}

double StateValue::to_double() const {
  return kind() == Kind::kInteger ? static_cast<double>(to_int())
                                  : get<double>(Kind::kFloat);
}

const std::string& StateValue::to_string() const {
  return get<std::string>(Kind::kString);
}

const std::string& StateValue::to_bytes() const {
  return get<Bytes>(Kind::kBytes).data;
}

const at::Tensor& StateValue::to_tensor() const {
  return get<at::Tensor>(Kind::kTensor);
}

const sharded_tensor::ShardedTensor& StateValue::to_sharded_tensor() const {
  return get<sharded_tensor::ShardedTensor>(Kind::kShardedTensor);
}

const StateValue::List& StateValue::to_list() const {
  return get<List>(Kind::kList);
}

StateValue::List& StateValue::to_list() {
  return const_cast<List&>(std::as_const(*this).to_list());
}

const StateDict& StateValue::to_dict() const {
  return *get<std::shared_ptr<StateDict>>(Kind::kDict);
}

StateDict& StateValue::to_dict() {
  return *get<std::shared_ptr<StateDict>>(Kind::kDict);
}

StateValue StateValue::on_load(
    std::function<void(const StateValue&)> receive) const {
  StateValue result = *this;
  result.receive_ = std::move(receive);
  return result;
}

StateValue StateValue::absent(std::shared_ptr<const void> group) const {
  StateValue result = *this;
  result.absent_ = std::move(group);
  return result;
}

StateValue StateValue::on_open(
    std::function<StateValue(const std::vector<Entry>&)> make) const {
  StateValue result = *this;
  result.make_ = std::move(make);
  return result;
}

StateValue StateValue::open(const std::vector<Entry>& entries) const {
  StateValue result = make_(entries);
  result.make_ = make_;
  if (!result.receive_) {
    result.receive_ = receive_;
  }
  return result;
}

void StateValue::receive(StateValue value) {
  value_ = std::move(value.value_);
  is_tuple_ = value.is_tuple_;
  absent_.reset();
  if (receive_) {
    receive_(*this);
  }
}

StateDict::StateDict(std::initializer_list<Item> items) {
  for (const Item& item : items) {
    TORCH_CHECK_VALUE(
        !contains(item.first), "StateDict: the name '", item.first,
        "' is there twice; give each value a name of its own");
    items_.push_back(item);
  }
}

const StateDict::Item* StateDict::find(const std::string& name) const {
  const auto found = std::find_if(
      items_.begin(), items_.end(),
      [&](const Item& item) { return item.first == name; });
  return found == items_.end() ? nullptr : &*found;
}

void StateDict::set(const std::string& name, StateValue value) {
  (*this)[name] = std::move(value);
}

StateValue& StateDict::operator[](const std::string& name) {
  if (const Item* item = find(name)) {
    return const_cast<Item*>(item)->second;
  }
  return items_.emplace_back(name, StateValue()).second;
}

const StateValue& StateDict::at(const std::string& name) const {
  const Item* item = find(name);
  TORCH_CHECK_INDEX(
      item != nullptr, "StateDict: no value is called '", name, "'; there are ",
      names_of(*this));
  return item->second;
}

bool StateDict::contains(const std::string& name) const {
  return find(name) != nullptr;
}

}  // namespace tessera::checkpoint

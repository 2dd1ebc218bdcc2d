#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>

#include "cc/checkpoint/foreign_tables.h"
#include "cc/optimizers/rule_info.h"

namespace sok {
namespace {

constexpr int kMaxSlotsOfOne = 3;

// The slots of an optimizer, in the order in which it makes them.
struct KnownSlots {
  const char* optimizer;
  const char* rules;                   // those of this library with the same slots, its own one first
  const char* usual;                   // hyper-parameters by which rows and steps can be told
  const char* ours[kMaxSlotsOfOne];    // in cc/optimizers
  const char* theirs[kMaxSlotsOfOne];  // in TensorFlow
};
constexpr char kAdamAsync[] = "AdamAsync";
constexpr char kBetas[] = "beta1=0.9 beta2=0.999 epsilon=1e-8";
constexpr char kAccumulator[] = "initial_accumulator=0.1";
constexpr char kMeanSquare[] = "initial_ms=1";
// In the order in which slots are looked for. The first entry with a rule is what exports of it write.
constexpr KnownSlots kKnown[] = {
    {"Adam", "adam lazy_adam", kBetas, {"m", "v"}, {"m", "v"}},
    {"AdamW", "adamw adam lazy_adam", kBetas, {"m", "v"}, {"m", "v"}},
    {"Adam", "adamw", kBetas, {"m", "v"}, {"m", "v"}},
    {"LazyAdam", "lazy_adam adam adamw", kBetas, {"m", "v"}, {"m", "v"}},
    {kAdamAsync, "lazy_adam adam adamw", kBetas, {"m", "v"}, {"m", "v"}},
    {"AdagradDecay",
     "adagrad_decay",
     kAccumulator,
     {"accumulator", "decay_power"},
     {"accumulator", "accumulator_decay_power"}},
    {"AdagradDecayV2",
     "adagrad_decay",
     kAccumulator,
     {"accumulator", "decay_power"},
     {"accumulator", "accumulator_decay_power"}},
    {"Adagrad", "adagrad", kAccumulator, {"accumulator"}, {"accumulator"}},
    {"Momentum", "momentum nesterov", "", {"momentum"}, {"momentum"}},
    {"Ftrl", "ftrl group_ftrl", kAccumulator, {"accumulator", "linear"}, {"accum", "linear"}},
    {"RMSProp", "rmsprop_centered", kMeanSquare, {"rms", "mg", "momentum"}, {"rms", "mg", "momentum"}},
    {"RMSProp", "rmsprop", kMeanSquare, {"rms", "momentum"}, {"rms", "momentum"}},
    {"Adadelta", "adadelta", "", {"accumulator", "accumulated_update"}, {"accum", "accum_update"}},
};

std::vector<std::string> RulesOf(const KnownSlots& known) {
  std::istringstream words(known.rules);
  return {std::istream_iterator<std::string>(words), {}};
}
bool IsOf(const KnownSlots& known, const std::string& rule) {
  const std::vector<std::string> rules = RulesOf(known);
  return std::find(rules.begin(), rules.end(), rule) != rules.end();
}

std::string Numbered(const KnownSlots& known, int slot) {
  return slot == 0 ? known.optimizer : StrCat(known.optimizer, "_", slot);
}
std::string Named(const KnownSlots& known, int slot) {
  return StrCat(known.optimizer, "/", known.theirs[slot]);
}

std::vector<std::string> AllSlots(std::string (*name_of)(const KnownSlots& known, int slot)) {
  std::set<std::string> names;
  for (const KnownSlots& known : kKnown) {
    for (int slot = 0; slot < kMaxSlotsOfOne && known.ours[slot] != nullptr; ++slot)
      names.insert(name_of(known, slot));
  }
  return {names.begin(), names.end()};
}

// The rule that trains a table, and those of its hyper-parameters that are known.
struct TrainedBy {
  const RuleInfo* rule = nullptr;
  std::map<std::string, float> hyper;

  Status Parse(const std::string& text) {
    std::istringstream words(text);
    std::string word;
    words >> word;
    SOK_ASSIGN_OR_RETURN(rule, FindRule(word));
    while (words >> word) {
      const size_t at = word.find('=');
      if (at == std::string::npos) return InvalidArgument("'", text, "' is not a rule with hyper-parameters");
      hyper[word.substr(0, at)] = std::strtof(word.c_str() + at + 1, nullptr);
    }
    return OkStatus();
  }
};

// The steps after which a power that begins as `beta` is `power`; none if that cannot be told.
std::optional<int64_t> StepsOf(float power, float beta) {
  if (!(power > 0.0f && power < 1.0f && beta > 0.0f && beta < 1.0f)) return std::nullopt;
  const double steps = std::log(static_cast<double>(power)) / std::log(static_cast<double>(beta)) - 1.0;
  return static_cast<int64_t>(std::llround(std::max(steps, 0.0)));
}

// The tensors that may have the power of a beta: of AdamAsync for each part of the table, or else of the
// optimizer of the whole checkpoint, which a scope may have named.
std::vector<std::string> PowersOf(const SavedCheckpoint& checkpoint, const Manifest& manifest,
                                  const std::string& beta) {
  std::vector<std::string> names;
  if (manifest.slots_of == kAdamAsync) {
    const std::string of_part = StrCat("/", kAdamAsync, beta == "beta1" ? "_2" : "_3");
    for (const std::string& entry : manifest.entries) {
      if (EndsWith(entry, of_part)) names.push_back(entry);
    }
    if (!names.empty()) return names;
  }
  const std::string name = beta + "_power";
  if (checkpoint.Has(name)) return {name};
  for (const auto& entry : checkpoint.index().entries) {
    if (EndsWith(entry.first, "/" + name)) names.push_back(entry.first);
  }
  return names;
}

// The steps of the optimizer; the global step if no power tells them, or optimizers of different steps do.
StatusOr<int64_t> StepsIn(SavedCheckpoint& checkpoint, const TrainedBy& trained, const Manifest& manifest) {
  // The larger beta's power lasts longer.
  for (const char* beta : {"beta2", "beta1"}) {
    const auto known = trained.hyper.find(beta);
    if (known == trained.hyper.end()) continue;
    std::set<int64_t> found;
    for (const std::string& name : PowersOf(checkpoint, manifest, beta)) {
      SOK_ASSIGN_OR_RETURN(const auto place, checkpoint.Find(name));
      const std::vector<int64_t>& shape = place.shape;
      if (place.dtype != "<f4" || (!shape.empty() && shape != std::vector<int64_t>{1})) continue;
      SOK_ASSIGN_OR_RETURN(const auto bytes, checkpoint.ReadNumbers(name, {"<f4", shape}));
      float power;
      std::memcpy(&power, bytes.data(), sizeof(power));
      const std::optional<int64_t> steps = StepsOf(power, known->second);
      if (steps.has_value()) found.insert(*steps);
    }
    // The parts of a table count the steps that they had rows in.
    if (found.size() == 1 || (!found.empty() && manifest.slots_of == kAdamAsync)) return *found.rbegin();
  }
  return manifest.steps;
}

// The name of a slot that the shard has, the i-th of `known`; empty if it has none.
std::string SlotIn(const SavedShard& shard, const KnownSlots& known, int slot) {
  const std::string by_our_name = StrCat(known.optimizer, "/", known.ours[slot]);
  for (const std::string& name : {Numbered(known, slot), Named(known, slot), by_our_name}) {
    if (shard.arrays.count(ForeignSlot(name)) != 0) return name;
  }
  return "";
}

int CountOf(const KnownSlots& known) {
  int slots = 0;
  while (slots < kMaxSlotsOfOne && known.ours[slots] != nullptr) ++slots;
  return slots;
}

bool StartsWith(const std::string& text, const std::string& start) {
  return text.compare(0, start.size(), start) == 0;
}

// The first slot in the shard; null if it has none.
const PlacedArray* FirstSlot(const SavedShard& shard) {
  const auto found = shard.arrays.lower_bound(ForeignSlot(""));
  return found != shard.arrays.end() && StartsWith(found->first, ForeignSlot("")) ? &found->second : nullptr;
}

// Moves the arrays of a slot to those that a table of this library has.
Status TakeSlot(const std::string& theirs, const std::string& ours, int64_t width, int64_t dim,
                SavedShard* shard) {
  auto values = shard->arrays.extract(ForeignSlot(theirs));
  auto keys = shard->arrays.extract(ForeignSlotKeys(theirs));
  if (values.empty()) return DataLoss("lacks the slot '", theirs, "' in one of its parts");
  PlacedArray& placed = values.mapped();
  int64_t& columns = placed.array.type.shape[1];
  // DeepRec's optimizers have one number for a row as the first of as many as the row has.
  if (width == 1 && columns == dim) placed.stored_columns = std::exchange(columns, 1);
  if (columns != width) {
    return DataLoss("has ", Describe(placed.array.type), " as '", placed.name, "', not ", width,
                    " floats for a row");
  }
  values.key() = "slot-" + ours;
  shard->arrays.insert(std::move(values));
  if (keys.empty()) return OkStatus();
  keys.key() = SlotKeys(ours);
  shard->arrays.insert(std::move(keys));
  return OkStatus();
}

// Whether a shard has these slots, and not one more, with which others have their numbers.
bool HasAll(const SavedShard& shard, const KnownSlots& known) {
  for (int slot = 0; slot < CountOf(known); ++slot) {
    if (SlotIn(shard, known, slot).empty()) return false;
  }
  return shard.arrays.count(ForeignSlot(Numbered(known, CountOf(known)))) == 0;
}

// The slots of the rule that a shard has; null if it lacks one of them.
const KnownSlots* FittingSlots(const RuleInfo& rule, const SavedShard& shard) {
  for (const KnownSlots& known : kKnown) {
    if (IsOf(known, rule.name) && HasAll(shard, known)) return &known;
  }
  return nullptr;
}

// The optimizer's state, without slots. Hyper-parameters that change from step to step are those of a sample.
StatusOr<SavedOptimizer> OptimizerOf(SavedCheckpoint& checkpoint, const TrainedBy& trained,
                                     const Manifest& manifest, std::vector<float>* hyper) {
  const RuleInfo& rule = *trained.rule;
  for (const RuleSlot& slot : rule.slots) {
    if (slot.fill == nullptr || trained.hyper.count(slot.fill) != 0) continue;
    return InvalidArgument("has slots of ", rule.name, ", whose ", slot.fill,
                           " in this program is not a constant: new rows need it");
  }
  SavedOptimizer optimizer;
  optimizer.name = rule.name;
  SOK_ASSIGN_OR_RETURN(optimizer.steps, StepsIn(checkpoint, trained, manifest));
  *hyper = rule.samples.front();
  const std::vector<std::string> names = rule.hyper_parameters();
  for (size_t i = 0; i < names.size(); ++i) {
    const auto known = trained.hyper.find(names[i]);
    if (known != trained.hyper.end()) (*hyper)[i] = known->second;
    optimizer.hyper.emplace_back(names[i], (*hyper)[i]);
  }
  SOK_RETURN_IF_ERROR(rule.CheckHyper(*hyper));
  return optimizer;
}

// Gives the table the optimizer and its slots.
Status TakeOptimizer(SavedCheckpoint& checkpoint, const TrainedBy& trained, const KnownSlots& known,
                     Manifest* manifest) {
  std::vector<float> hyper;
  manifest->slots_of = known.optimizer;
  SOK_ASSIGN_OR_RETURN(auto optimizer, OptimizerOf(checkpoint, trained, *manifest, &hyper));
  const std::vector<SlotSpec> specs = trained.rule->Slots(manifest->table.options.dim, hyper);
  for (size_t i = 0; i < specs.size(); ++i) {
    const std::string name = trained.rule->slots[i].name;
    int number = 0;
    while (number < CountOf(known) && known.ours[number] != name) ++number;
    if (number == CountOf(known)) return Internal("no slot ", name);
    const std::string theirs = SlotIn(manifest->shards.front(), known, number);
    for (SavedShard& shard : manifest->shards) {
      SOK_RETURN_IF_ERROR(TakeSlot(theirs, name, specs[i].width, manifest->table.options.dim, &shard));
    }
    optimizer.slots.push_back(SavedOptimizer::Slot{name, specs[i].width, specs[i].fill});
  }
  if (!manifest->table.counts_global_steps) manifest->steps = optimizer.steps;
  manifest->optimizer = std::move(optimizer);
  return OkStatus();
}

// Removes the slots that were not taken.
void DropSlots(SavedShard* shard, std::vector<std::string>* left_out) {
  for (auto array = shard->arrays.begin(); array != shard->arrays.end();) {
    const bool is_keys = StartsWith(array->first, ForeignSlotKeys(""));
    if (!is_keys && !StartsWith(array->first, ForeignSlot(""))) {
      ++array;
      continue;
    }
    if (!is_keys) left_out->push_back(array->second.name);
    array = shard->arrays.erase(array);
  }
}

}  // namespace

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

const std::vector<std::string>& NumberedSlots() {
  static const std::vector<std::string> names = AllSlots(Numbered);
  return names;
}

const std::vector<std::string>& NamedSlots() {
  static const std::vector<std::string> names = AllSlots(Named);
  return names;
}

std::map<std::string, WrittenSlots> SlotsOfRules() {
  std::map<std::string, WrittenSlots> slots;
  for (const KnownSlots& known : kKnown) {
    WrittenSlots written{known.optimizer, {}};
    for (int i = 0; i < CountOf(known); ++i) written.slots.emplace_back(known.ours[i], known.theirs[i]);
    for (const std::string& rule : RulesOf(known)) slots.emplace(rule, written);
  }
  return slots;
}

std::string ForeignSlot(const std::string& slot) { return "saved-slot-" + slot; }
std::string ForeignSlotKeys(const std::string& slot) { return "saved-slot-keys-" + slot; }
std::string SlotKeys(const std::string& slot) { return "slot-keys-" + slot; }

Status TakeSlots(SavedCheckpoint& checkpoint, const std::string& trained_by, Manifest* manifest) {
  const std::string path = StrCat(checkpoint.index_path(), ":", manifest->table.options.name);
  const PlacedArray* any = nullptr;
  for (const SavedShard& shard : manifest->shards) any = any != nullptr ? any : FirstSlot(shard);
  if (any == nullptr) return OkStatus();
  TrainedBy trained;
  if (!trained_by.empty()) SOK_RETURN_IF_ERROR(trained.Parse(trained_by));
  if (trained.rule != nullptr && !trained.rule->slots.empty()) {
    const KnownSlots* const known = FittingSlots(*trained.rule, manifest->shards.front());
    if (known == nullptr) {
      return InvalidArgument("'", path, "' has slots, such as '", any->name, "', but none of ",
                             trained.rule->name,
                             ", which trains the table. Its rows alone can be read with "
                             "tf.compat.v1.train.init_from_checkpoint");
    }
    const Status status = TakeOptimizer(checkpoint, trained, *known, manifest);
    if (!status.ok()) return Status(status.code(), StrCat("'", path, "' ", status.message()));
  }
  for (SavedShard& shard : manifest->shards) DropSlots(&shard, &manifest->left_out);
  return OkStatus();
}

Status TakeSlotsByName(SavedCheckpoint& checkpoint, const std::string& trained_by, Manifest* manifest) {
  std::string rule = trained_by.substr(0, trained_by.find(' '));
  for (const KnownSlots& known : kKnown) {
    const bool fits = rule.empty() ? HasAll(manifest->shards.front(), known) : IsOf(known, rule);
    if (!fits) continue;
    if (rule.empty()) rule = RulesOf(known).front();
    const std::string told = trained_by.substr(std::min(rule.size(), trained_by.size()));
    return TakeSlots(checkpoint, StrCat(rule, " ", known.usual, told), manifest);
  }
  return TakeSlots(checkpoint, trained_by, manifest);
}

}  // namespace sok

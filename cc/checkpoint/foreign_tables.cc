#include "cc/checkpoint/foreign_tables.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "cc/checkpoint/array_type.h"

namespace sok {
namespace {

// The remainders by which DeepRec orders keys, which its offsets count.
constexpr int64_t kRemainders = 1000;

// What DeepRec's AdamAsync has beside a part's slots: the powers of its betas, of shape [1].
constexpr const char* kPowersOfAsync[] = {"/AdamAsync_2", "/AdamAsync_3"};

constexpr char kFullTensor[] = "-";
constexpr char kIncrementTensor[] = "-sparse_incr_";

bool HasFloats(const TensorPlace& place) { return place.dtype != "<i8" && IsReadAs(place.dtype, "<f4"); }

// Reads the tensors of one table in one checkpoint.
class Reader {
 public:
  Reader(SavedCheckpoint& checkpoint, const std::string& name) : checkpoint_(checkpoint), name_(name) {}

  StatusOr<Manifest> Read();

 private:
  Status ReadDeepRec();
  Status ReadRecommendersAddons();
  // Some rows of a variable: the entry of the tensor or its slice, the first row and their number.
  struct RowSlice {
    std::string entry;
    int64_t first = 0;
    int64_t rows = 0;
  };
  Status ReadVariable();
  Status ReadSok2();
  Status AddSlot(const std::string& slot, const std::vector<RowSlice>& slices);
  StatusOr<std::vector<RowSlice>> SlicesOf(const std::string& tensor, const TensorPlace& place) const;
  Status PlaceRows(const std::string& tensor, const RowSlice& slice, const std::string& array,
                   SavedShard* shard);
  Status ReadClock();
  // Adds the shard of the tensors `prefix`-keys and so on. Slots are tables too, by their names here.
  Status AddShard(const std::string& prefix, const std::map<std::string, std::string>& slots);
  // Notes the entries of a part, or of a slot of one.
  void NoteTable(const std::string& prefix);
  void Note(const std::string& entry) {
    if (checkpoint_.Has(entry)) manifest_.entries.push_back(entry);
  }
  // Adds DeepRec's counts of rows, and keys that wait for admission.
  Status AddCounts(const std::string& prefix, SavedShard* shard);
  Status AddWaiting(const std::string& prefix, SavedShard* shard);
  Status CheckOffsets(const std::string& name, int64_t keys);
  // Places a tensor as an array of a shard. DataLoss unless it has this type.
  Status Place(const std::string& tensor, const std::string& dtype, std::vector<int64_t> shape,
               const std::string& array, SavedShard* shard);
  // The same for keys of any number, and for floats of any number for each row.
  Status PlaceKeys(const std::string& tensor, const std::string& array, SavedShard* shard);
  Status PlaceMatrix(const std::string& tensor, int64_t rows, const std::string& array, SavedShard* shard);
  // Whether there is a part of such a table, which may lack the other one.
  bool HasTable(const std::string& prefix) const {
    return checkpoint_.Has(prefix + tensor_ + "keys") || checkpoint_.Has(prefix + tensor_ + "values");
  }
  bool HasParts() const { return HasTable(name_ + "/part_0") || HasTable(name_ + "/part_1"); }
  Status Begin(const char* system);
  Status Damaged(const std::string& tensor, const std::string& what) const {
    return DataLoss("'", checkpoint_.index_path(), "' has a '", tensor, "' that ", what);
  }

  SavedCheckpoint& checkpoint_;
  const std::string name_;
  std::string tensor_ = kFullTensor;  // what comes between the names of a table and of its tensor
  Manifest manifest_;
};

// The beginnings of the names of a table's shards in the form of recommenders-addons, by their numbers from 1
// on; empty where there is none. *twice is set to a shard that is there twice.
std::vector<std::string> ShardsOf(const SavedCheckpoint& checkpoint, const std::string& name,
                                  std::string* twice) {
  // The table "a/b" is "b/a_b_mht_1of2", or "b_1/a_b_mht_1of2" if the scope "b" was taken.
  std::string joined = name;
  std::replace(joined.begin(), joined.end(), '/', '_');
  const std::string last = name.substr(name.rfind('/') + 1);
  const std::string marked = "/" + joined + "_mht_";
  std::vector<std::string> shards;
  const auto& entries = checkpoint.index().entries;
  for (auto entry = entries.lower_bound(last);
       entry != entries.end() && entry->first.compare(0, last.size(), last) == 0; ++entry) {
    const size_t mark = entry->first.find(marked);
    if (mark == std::string::npos || !EndsWith(entry->first, "-keys")) continue;
    size_t number = 0;
    size_t of = 0;
    int end = 0;
    const char* const text = entry->first.c_str() + mark + marked.size();
    if (std::sscanf(text, "%5zuof%5zu-keys%n", &number, &of, &end) != 2 || text[end] != '\0') continue;
    if (number == 0 || number > of) continue;
    if (shards.size() < of) shards.resize(of);
    std::string& shard = shards[number - 1];
    if (!shard.empty()) *twice = entry->first;
    shard = entry->first.substr(0, entry->first.size() - 5);
  }
  return shards;
}

StatusOr<Manifest> Reader::Read() {
  if (checkpoint_.is_sok2()) {
    SOK_RETURN_IF_ERROR(ReadSok2());
  } else {
    SOK_RETURN_IF_ERROR(ReadDeepRec());
    SOK_RETURN_IF_ERROR(ReadRecommendersAddons());
    if (!manifest_.is_foreign()) SOK_RETURN_IF_ERROR(ReadVariable());
  }
  if (!manifest_.is_foreign()) return NotFound("'", checkpoint_.index_path(), "' has no table '", name_, "'");
  std::set<int> files;
  for (const SavedShard& shard : manifest_.shards) {
    for (const auto& array : shard.arrays) files.insert(array.second.shard);
  }
  SOK_RETURN_IF_ERROR(checkpoint_.RefuseLinks(files));
  manifest_.table.options.name = name_;
  // Which one it was is not told.
  manifest_.table.options.initializer = Initializer(InitializerKind::kConstant, 0.0f, 0.0f, 0);
  manifest_.table.options.ranks = static_cast<int>(manifest_.shards.size());
  return std::move(manifest_);
}

Status Reader::Begin(const char* system) {
  if (manifest_.is_foreign() || checkpoint_.Has(name_)) {
    return InvalidArgument("'", checkpoint_.index_path(), "' has '", name_, "' in two forms: as a table of ",
                           system, ", and ",
                           manifest_.is_foreign() ? "as one of " + manifest_.system : "as a tensor");
  }
  manifest_.system = system;
  return ReadClock();
}

Status Reader::ReadDeepRec() {
  const auto part = [this](int64_t number) { return StrCat(name_, "/part_", number); };
  // An increment has the changed rows of a table, and the full checkpoint is another one.
  if (!HasTable(name_) && !HasParts()) tensor_ = kIncrementTensor;
  const bool whole = HasTable(name_);
  // Parts are numbered from 0 on. What is there of a later one tells that an earlier one is missing.
  int64_t parts = 0;
  const auto& entries = checkpoint_.index().entries;
  const std::string begin = name_ + "/part_";
  for (auto entry = entries.lower_bound(begin);
       entry != entries.end() && entry->first.compare(0, begin.size(), begin) == 0; ++entry) {
    int64_t number = 0;
    int end = 0;
    const char* const text = entry->first.c_str() + begin.size();
    if (std::sscanf(text, "%5" SCNd64 "%n", &number, &end) != 1 || number < 0) continue;
    if (text + end == tensor_ + "keys" || text + end == tensor_ + "values") {
      parts = std::max(parts, number + 1);
    }
  }
  if (!whole && parts == 0) {
    tensor_ = kFullTensor;
    return OkStatus();
  }
  SOK_RETURN_IF_ERROR(Begin(kDeepRec));
  manifest_.delta = tensor_ == kIncrementTensor;
  if (whole && parts > 0) {
    return InvalidArgument("'", checkpoint_.index_path(), "' has '", name_, "' in two forms: '", name_,
                           "' and '", part(parts - 1), "'");
  }
  for (int64_t number = 0; number < std::max<int64_t>(parts, 1); ++number) {
    const std::string prefix = whole ? name_ : part(number);
    std::map<std::string, std::string> slots;
    for (const std::string& slot : NumberedSlots()) {
      const std::string table = StrCat(prefix, "/", slot);
      if (HasTable(table)) slots[slot] = table;
    }
    SOK_RETURN_IF_ERROR(AddShard(prefix, slots));
  }
  return OkStatus();
}

Status Reader::ReadRecommendersAddons() {
  std::string twice;
  const std::vector<std::string> shards = ShardsOf(checkpoint_, name_, &twice);
  if (shards.empty()) return OkStatus();
  SOK_RETURN_IF_ERROR(Begin(kRecommendersAddons));
  if (!twice.empty()) {
    return InvalidArgument("'", checkpoint_.index_path(), "' has two shards of one number of '", name_,
                           "', such as '", twice, "'");
  }
  std::map<std::string, std::vector<std::string>> slots;
  for (const std::string& slot : NamedSlots()) {
    std::vector<std::string> of_slot = ShardsOf(checkpoint_, StrCat(name_, "/", slot), &twice);
    if (!of_slot.empty()) slots[slot] = std::move(of_slot);
  }
  for (size_t shard = 0; shard < shards.size(); ++shard) {
    std::map<std::string, std::string> of_shard;
    for (const auto& [slot, tables] : slots) {
      if (tables.size() != shards.size() || tables[shard].empty()) {
        return DataLoss("'", checkpoint_.index_path(), "' lacks shard ", shard + 1, " of ", shards.size(),
                        " of the slot '", slot, "' of '", name_, "'");
      }
      of_shard[slot] = tables[shard];
    }
    if (shards[shard].empty()) {
      return DataLoss("'", checkpoint_.index_path(), "' lacks shard ", shard + 1, " of ", shards.size(),
                      " of '", name_, "'");
    }
    SOK_RETURN_IF_ERROR(AddShard(shards[shard], of_shard));
  }
  return OkStatus();
}

Status Reader::ReadVariable() {
  const auto place = checkpoint_.Find(name_);
  if (place.status().code() == StatusCode::kNotFound) return OkStatus();
  SOK_RETURN_IF_ERROR(place.status());
  const std::vector<int64_t>& shape = place.value().shape;
  if (!HasFloats(place.value()) || shape.size() != 2 || shape[1] < 1) return OkStatus();
  manifest_.system = kVariable;
  manifest_.table.options.dim = shape[1];
  SOK_RETURN_IF_ERROR(ReadClock());
  SOK_ASSIGN_OR_RETURN(const auto slices, SlicesOf(name_, place.value()));
  for (const RowSlice& slice : slices) {
    SavedShard shard;
    shard.rows = shard.table_rows = slice.rows;
    SOK_RETURN_IF_ERROR(PlaceRows(name_, slice, "values", &shard));
    PlacedArray keys;
    keys.array.type = ArrayType{"<i8", {slice.rows}};
    keys.name = name_;
    keys.shard = shard.arrays["values"].shard;
    keys.first = slice.first;
    shard.arrays["keys"] = std::move(keys);
    manifest_.shards.push_back(std::move(shard));
  }
  for (const std::string& slot : NumberedSlots()) SOK_RETURN_IF_ERROR(AddSlot(slot, slices));
  return OkStatus();
}

Status Reader::AddSlot(const std::string& slot, const std::vector<RowSlice>& slices) {
  const std::string tensor = StrCat(name_, "/", slot);
  if (!checkpoint_.Has(tensor)) return OkStatus();
  SOK_ASSIGN_OR_RETURN(const auto place, checkpoint_.Find(tensor));
  // Optimizers have scalars with such names too.
  if (place.shape.size() != 2) return OkStatus();
  SOK_ASSIGN_OR_RETURN(const auto own, SlicesOf(tensor, place));
  for (size_t i = 0; i < slices.size(); ++i) {
    if (own.size() != slices.size() || own[i].rows != slices[i].rows) {
      return Damaged(tensor, StrCat("has not the rows of '", name_, "', or is partitioned in another way"));
    }
    SOK_RETURN_IF_ERROR(PlaceRows(tensor, own[i], ForeignSlot(slot), &manifest_.shards[i]));
  }
  return OkStatus();
}

Status Reader::PlaceRows(const std::string& tensor, const RowSlice& slice, const std::string& array,
                         SavedShard* shard) {
  // Names of slices' entries are not for messages.
  if (!PlaceMatrix(slice.entry, slice.rows, array, shard).ok()) {
    return Damaged(tensor,
                   StrCat("lacks the rows of floats from ", slice.first, " on, ", slice.rows, " of them"));
  }
  shard->arrays[array].name = tensor;
  if (slice.first == 0) Note(tensor);
  if (slice.entry != tensor) Note(slice.entry);
  return OkStatus();
}

StatusOr<std::vector<Reader::RowSlice>> Reader::SlicesOf(const std::string& tensor,
                                                         const TensorPlace& place) const {
  const int64_t rows = place.shape[0];
  std::vector<RowSlice> slices;
  if (place.slices.empty()) slices.push_back(RowSlice{tensor, 0, rows});
  for (const TensorSlice& slice : place.slices) {
    const std::vector<TensorSlice::Extent>& extents = slice.extents;
    const bool has_whole_rows =
        extents.size() == 2 && extents[1].start == 0 &&
        (extents[1].length == TensorSlice::kWhole || extents[1].length == place.shape[1]);
    if (!has_whole_rows) return Damaged(tensor, "has slices of something other than whole rows");
    const int64_t length = extents[0].length == TensorSlice::kWhole ? rows : extents[0].length;
    slices.push_back(RowSlice{SliceEntry(tensor, slice), extents[0].start, length});
  }
  std::sort(slices.begin(), slices.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  int64_t next = 0;
  for (const RowSlice& slice : slices) {
    if (slice.first != next || slice.rows > rows - next) {
      return Damaged(tensor, StrCat("has a slice of ", slice.rows, " rows from ", slice.first,
                                    " on, not from ", next, " on of ", rows));
    }
    next += slice.rows;
  }
  if (next != rows) return Damaged(tensor, StrCat("has slices of ", next, " of ", rows, " rows"));
  return slices;
}

Status Reader::ReadSok2() {
  // TensorFlow calls the variable "items" also "items:0".
  std::string table = Sok2Name(name_);
  if (!checkpoint_.Has(table + "-key")) table += "_0";
  if (!checkpoint_.Has(table + "-key")) return OkStatus();
  manifest_.system = kSok2;
  SavedShard shard;
  SOK_RETURN_IF_ERROR(PlaceKeys(table + "-key", "keys", &shard));
  shard.rows = shard.table_rows = shard.arrays["keys"].array.type.shape[0];
  SOK_RETURN_IF_ERROR(PlaceMatrix(table + "-weight", shard.rows, "values", &shard));
  manifest_.table.options.dim = shard.arrays["values"].array.type.shape[1];
  const std::string begin = table + "-";
  const auto& entries = checkpoint_.index().entries;
  for (auto entry = entries.lower_bound(begin);
       entry != entries.end() && entry->first.compare(0, begin.size(), begin) == 0; ++entry) {
    // "items-Adam-m" is the slot "Adam/m".
    std::string slot = entry->first.substr(begin.size());
    const size_t dash = slot.find('-');
    if (dash == std::string::npos) continue;
    slot[dash] = '/';
    SOK_RETURN_IF_ERROR(PlaceMatrix(entry->first, shard.rows, ForeignSlot(slot), &shard));
  }
  manifest_.shards.push_back(std::move(shard));
  return OkStatus();
}

Status Reader::ReadClock() {
  constexpr char kGlobalStep[] = "global_step";
  const auto place = checkpoint_.Find(kGlobalStep);
  if (!place.ok() || place.value().dtype != "<i8" || !place.value().shape.empty()) return OkStatus();
  SOK_ASSIGN_OR_RETURN(const auto bytes, checkpoint_.ReadNumbers(kGlobalStep, {"<i8", {}}));
  std::memcpy(&manifest_.steps, bytes.data(), sizeof(manifest_.steps));
  if (manifest_.steps < 0 || manifest_.steps > kMaxCount) {
    return Damaged(kGlobalStep, StrCat("is ", manifest_.steps));
  }
  manifest_.table.counts_global_steps = true;
  return OkStatus();
}

void Reader::NoteTable(const std::string& prefix) {
  for (const char* tensor :
       {"-keys", "-values", "-freqs", "-versions", "-keys_filtered", "-freqs_filtered", "-versions_filtered",
        "-partition_offset", "-partition_filter_offset", "-sparse_incr_keys", "-sparse_incr_values",
        "-sparse_incr_freqs", "-sparse_incr_versions", "-incr_partition_offset"}) {
    Note(prefix + tensor);
  }
  for (const char* beta : kPowersOfAsync) Note(prefix + beta);
}

Status Reader::AddShard(const std::string& prefix, const std::map<std::string, std::string>& slots) {
  NoteTable(prefix);
  for (const auto& slot : slots) NoteTable(slot.second);
  SavedShard shard;
  SOK_RETURN_IF_ERROR(PlaceKeys(prefix + tensor_ + "keys", "keys", &shard));
  shard.rows = shard.table_rows = shard.arrays["keys"].array.type.shape[0];
  SOK_RETURN_IF_ERROR(PlaceMatrix(prefix + tensor_ + "values", shard.rows, "values", &shard));
  const int64_t width = shard.arrays["values"].array.type.shape[1];
  int64_t& dim = manifest_.table.options.dim;
  if (dim == 0) dim = width;
  if (dim != width) return Damaged(prefix + tensor_ + "values", StrCat("has ", width, " columns, not ", dim));
  const char* const offsets = manifest_.delta ? "-incr_partition_offset" : "-partition_offset";
  for (const auto& [slot, table] : slots) {
    const std::string keys = ForeignSlotKeys(slot);
    SOK_RETURN_IF_ERROR(PlaceKeys(table + tensor_ + "keys", keys, &shard));
    const int64_t rows = shard.arrays[keys].array.type.shape[0];
    SOK_RETURN_IF_ERROR(PlaceMatrix(table + tensor_ + "values", rows, ForeignSlot(slot), &shard));
    if (manifest_.system == kDeepRec) SOK_RETURN_IF_ERROR(CheckOffsets(table + offsets, rows));
  }
  if (manifest_.system == kDeepRec) {
    SOK_RETURN_IF_ERROR(CheckOffsets(prefix + offsets, shard.rows));
    SOK_RETURN_IF_ERROR(AddCounts(prefix, &shard));
    SOK_RETURN_IF_ERROR(AddWaiting(prefix, &shard));
    // What has a row now does not wait any more.
    if (manifest_.delta) shard.arrays["waiting_deleted"] = shard.arrays["keys"];
  }
  manifest_.shards.push_back(std::move(shard));
  return OkStatus();
}

Status Reader::AddCounts(const std::string& prefix, SavedShard* shard) {
  for (const auto& [suffix, array] : {std::pair("freqs", "frequency"), std::pair("versions", "last_step")}) {
    const std::string tensor = prefix + tensor_ + suffix;
    if (!checkpoint_.Has(tensor)) continue;
    SOK_RETURN_IF_ERROR(PlaceKeys(tensor, array, shard));
    const int64_t counts = shard->arrays[array].array.type.shape[0];
    if (counts == 0 && shard->rows > 0) {
      shard->arrays.erase(array);
    } else if (counts != shard->rows) {
      return Damaged(tensor, StrCat("has ", counts, " numbers for ", shard->rows, " keys"));
    }
  }
  // Without a global step, the numbers mean nothing.
  if (!manifest_.table.counts_global_steps && shard->arrays.erase("last_step") > 0) {
    manifest_.left_out.push_back(prefix + tensor_ + "versions");
  }
  return OkStatus();
}

Status Reader::AddWaiting(const std::string& prefix, SavedShard* shard) {
  const std::string keys = prefix + "-keys_filtered";
  if (!checkpoint_.Has(keys)) return OkStatus();
  SOK_RETURN_IF_ERROR(PlaceKeys(keys, "waiting_keys", shard));
  const int64_t waiting = shard->arrays["waiting_keys"].array.type.shape[0];
  SOK_RETURN_IF_ERROR(CheckOffsets(prefix + "-partition_filter_offset", waiting));
  SOK_RETURN_IF_ERROR(Place(prefix + "-freqs_filtered", "<i8", {waiting}, "waiting_counts", shard));
  const std::string versions = prefix + "-versions_filtered";
  const auto place = checkpoint_.Find(versions);
  if (place.ok() && manifest_.table.counts_global_steps && place.value().shape != std::vector<int64_t>{0}) {
    return Place(versions, "<i8", {waiting}, "waiting_last_step", shard);
  }
  PlacedArray now = shard->arrays["waiting_counts"];
  now.whole_crc32c.reset();
  now.first = manifest_.steps;
  now.increase = 0;
  shard->arrays["waiting_last_step"] = std::move(now);
  return OkStatus();
}

Status Reader::CheckOffsets(const std::string& name, int64_t keys) {
  if (!checkpoint_.Has(name)) return OkStatus();
  SOK_ASSIGN_OR_RETURN(const auto bytes, checkpoint_.ReadNumbers(name, {"<i4", {kRemainders + 1}}));
  int32_t before = 0;
  for (int64_t i = 0; i <= kRemainders; ++i) {
    int32_t offset;
    std::memcpy(&offset, bytes.data() + i * 4, sizeof(offset));
    if (offset < before || (i == 0 && offset != 0)) {
      return Damaged(name, StrCat("has ", offset, " after ", before));
    }
    before = offset;
  }
  return before == keys ? OkStatus() : Damaged(name, StrCat("ends at ", before, " of ", keys, " keys"));
}

Status Reader::Place(const std::string& tensor, const std::string& dtype, std::vector<int64_t> shape,
                     const std::string& array, SavedShard* shard) {
  SOK_ASSIGN_OR_RETURN(const TensorPlace place, checkpoint_.FindNeeded(tensor));
  const ArrayType found{place.dtype, place.shape};
  const ArrayType wanted{dtype, std::move(shape)};
  if (found != wanted || place.bytes != DataBytes(wanted)) {
    return Damaged(tensor,
                   StrCat("is ", place.bytes, " bytes of ", Describe(found), ", not ", Describe(wanted)));
  }
  PlacedArray placed;
  placed.array.type = wanted;
  placed.name = tensor;
  placed.shard = place.shard;
  placed.offset = place.offset;
  if (!checkpoint_.is_sok2()) placed.whole_crc32c = place.crc32c;
  shard->arrays[array] = std::move(placed);
  return OkStatus();
}

Status Reader::PlaceMatrix(const std::string& tensor, int64_t rows, const std::string& array,
                           SavedShard* shard) {
  SOK_ASSIGN_OR_RETURN(const TensorPlace place, checkpoint_.FindNeeded(tensor));
  const std::vector<int64_t>& shape = place.shape;
  const int64_t columns = shape.size() == 2 ? shape[1] : 0;
  if (columns < 1 || columns > TableOptions::kMaxDim) {
    return Damaged(tensor, StrCat("is ", Describe(ArrayType{place.dtype, shape}), ", not a matrix"));
  }
  const std::string dtype = place.dtype;
  // Integers are counts that an optimizer has as a slot.
  const bool is_slot = array != "values";
  const bool is_other = IsReadAs(dtype, "<f4") && (is_slot || dtype != "<i8");
  SOK_RETURN_IF_ERROR(Place(tensor, is_other ? dtype : "<f4", {rows, columns}, array, shard));
  PlacedArray& placed = shard->arrays[array];
  placed.array.type.dtype = "<f4";
  if (dtype != "<f4") placed.stored_as = dtype;
  return OkStatus();
}

Status Reader::PlaceKeys(const std::string& tensor, const std::string& array, SavedShard* shard) {
  SOK_ASSIGN_OR_RETURN(const TensorPlace place, checkpoint_.FindNeeded(tensor));
  const std::string& dtype = place.dtype;
  const bool is_other = dtype == "<i4" || dtype == "<u4" || dtype == "<u8";
  const int64_t keys = place.shape.size() == 1 ? place.shape[0] : 0;
  SOK_RETURN_IF_ERROR(Place(tensor, is_other ? dtype : "<i8", {keys}, array, shard));
  PlacedArray& placed = shard->arrays[array];
  placed.array.type.dtype = "<i8";
  if (dtype == "<i4" || dtype == "<u4") placed.stored_as = dtype;
  if (array == "keys" && dtype == "<i4") manifest_.table.options.key_dtype = "int32";
  if (array == "keys" && dtype == "<u4") manifest_.table.options.key_dtype = "uint32";
  return OkStatus();
}

}  // namespace

namespace {

// A part of a table by the name of its tensor of keys.
struct Part {
  std::string table;
  const char* system;
};

// Whether a name is that of a slot of a table, as in "items/Adam_1" or "scope_users_Adam_m".
bool IsSlot(const std::string& name, const std::vector<std::string>& slots, char between) {
  for (std::string slot : slots) {
    std::replace(slot.begin(), slot.end(), '/', between);
    if (EndsWith(name, between + slot)) return true;
  }
  return false;
}

// The part that has such a tensor, if any: "items/part_0-keys", or "users/scope_users_mht_1of2-keys".
std::optional<Part> PartOf(const SavedCheckpoint& checkpoint, const std::string& tensor) {
  std::string name;
  for (const std::string between : {kFullTensor, kIncrementTensor}) {
    if (!EndsWith(tensor, between + "keys")) continue;
    name = tensor.substr(0, tensor.size() - between.size() - 4);
    if (!checkpoint.Has(name + between + "values")) return std::nullopt;
  }
  if (name.empty()) return std::nullopt;
  const size_t mark = name.rfind("_mht_");
  const size_t slash = name.rfind('/');
  size_t number = 0;
  size_t of = 0;
  if (mark != std::string::npos && slash != std::string::npos && mark > slash &&
      std::sscanf(name.c_str() + mark, "_mht_%5zuof%5zu", &number, &of) == 2) {
    const std::string joined = name.substr(slash + 1, mark - slash - 1);
    if (IsSlot(joined, NamedSlots(), '_')) return std::nullopt;
    // The last scope may have a number, because its name was taken.
    for (std::string last = name.substr(0, slash); !last.empty();) {
      if (joined == last) return Part{last, kRecommendersAddons};
      if (EndsWith(joined, "_" + last)) {
        return Part{joined.substr(0, joined.size() - last.size() - 1) + "/" + last, kRecommendersAddons};
      }
      const size_t digits = last.find_last_not_of("0123456789");
      last = digits != std::string::npos && digits + 1 < last.size() && last[digits] == '_'
                 ? last.substr(0, digits)
                 : "";
    }
    return std::nullopt;
  }
  if (IsSlot(name, NumberedSlots(), '/')) return std::nullopt;
  const size_t part = name.rfind("/part_");
  if (part != std::string::npos && name.find_first_not_of("0123456789", part + 6) == std::string::npos) {
    name.resize(part);
  }
  return Part{name, kDeepRec};
}

// Whether a tensor is a matrix of floats that is no part of a table, and no slot of such a matrix.
bool IsVariable(const SavedCheckpoint& checkpoint, const std::string& tensor) {
  const auto place = checkpoint.Find(tensor);
  if (!place.ok() || !HasFloats(place.value()) || place.value().shape.size() != 2) return false;
  const std::string name = tensor.substr(0, tensor.rfind('-'));
  if (tensor.find('#') != std::string::npos || checkpoint.Has(name + "-keys") ||
      checkpoint.Has(name + kIncrementTensor + "keys")) {
    return false;
  }
  return !IsSlot(tensor, NumberedSlots(), '/') || !checkpoint.Has(tensor.substr(0, tensor.rfind('/')));
}

}  // namespace

std::vector<ForeignTable> ForeignTables(const SavedCheckpoint& checkpoint) {
  std::map<std::string, const char*> tables;
  for (const auto& entry : checkpoint.index().entries) {
    if (checkpoint.is_sok2()) {
      if (EndsWith(entry.first, "-key")) tables[entry.first.substr(0, entry.first.size() - 4)] = kSok2;
      continue;
    }
    const std::optional<Part> part = PartOf(checkpoint, entry.first);
    if (part.has_value()) tables[part->table] = part->system;
    if (IsVariable(checkpoint, entry.first)) tables[entry.first] = kVariable;
  }
  std::vector<ForeignTable> found;
  for (const auto& [name, system] : tables) found.push_back(ForeignTable{name, system});
  return found;
}

StatusOr<Manifest> ReadForeignTable(SavedCheckpoint& checkpoint, const std::string& name) {
  return Reader(checkpoint, name).Read();
}

StatusOr<std::set<std::string>> EntriesOfForeignTables(SavedCheckpoint& checkpoint,
                                                       const std::vector<std::string>& variables) {
  std::set<std::string> entries;
  for (const ForeignTable& table : ForeignTables(checkpoint)) {
    const bool is_variable = table.system == kVariable;
    if (is_variable && std::count(variables.begin(), variables.end(), table.name) == 0) continue;
    SOK_ASSIGN_OR_RETURN(const auto manifest, ReadForeignTable(checkpoint, table.name));
    entries.insert(manifest.entries.begin(), manifest.entries.end());
  }
  return entries;
}

}  // namespace sok

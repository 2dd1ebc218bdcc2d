#include <algorithm>
#include <cctype>
#include <utility>

#include "cc/checkpoint/array_type.h"
#include "cc/checkpoint/foreign_tables.h"

namespace sok {
namespace {

constexpr int64_t kNameBytes = 256;
constexpr int64_t kShortNameBytes = 32;
constexpr int64_t kTableBytes = 3 * 4 + 8 + kNameBytes + kShortNameBytes;
constexpr int64_t kHeadBytes = kNameBytes + 4 + kShortNameBytes + 4;
constexpr int64_t kMaxDescriptionBytes = int64_t{1} << 26;
// By their numbers in files.
constexpr const char* kTypes[] = {"<i4", "<i8", "<u4", "<u8", "<f2", "<f4", "<f8"};
enum Kind { kKeys = 0, kValues = 1, kSlot = 2 };

// Reads fields one after the other, which the caller knows to be there.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : left_(bytes) {}

  uint64_t Number(size_t bytes) {
    uint64_t value = 0;
    for (const char c : Take(bytes)) value = value << 8 | static_cast<unsigned char>(c);
    return value;
  }
  std::string Name(size_t bytes) {
    const std::string_view field = Take(bytes);
    const size_t first = field.find_first_not_of(' ');
    return first == std::string_view::npos ? "" : std::string(field.substr(first));
  }

 private:
  std::string_view Take(size_t bytes) {
    const std::string_view taken = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return taken;
  }

  std::string_view left_;
};

struct Table {
  std::string key_type;
  std::string value_type;
  int64_t dim = 0;
  int64_t rows = 0;
  std::string name;
  std::string optimizer;
};

std::string TypeOf(uint64_t number) { return number < std::size(kTypes) ? kTypes[number] : ""; }

StatusOr<std::vector<Table>> ReadDescription(Files& files, const std::string& path) {
  std::string bytes;
  SOK_RETURN_IF_ERROR(ReadWholeFile(files, path, kMaxDescriptionBytes, &bytes));
  if (bytes.size() < 4) return DataLoss("'", path, "' has ", bytes.size(), " bytes");
  Fields fields(bytes);
  const uint64_t count = fields.Number(4);
  if (bytes.size() != 4 + count * kTableBytes) {
    return DataLoss("'", path, "' has ", bytes.size(), " bytes, which are not the ", count,
                    " tables that it names");
  }
  // Each fact of all tables, and then the next one.
  std::vector<Table> tables(static_cast<size_t>(count));
  for (Table& table : tables) table.key_type = TypeOf(fields.Number(4));
  for (Table& table : tables) table.value_type = TypeOf(fields.Number(4));
  for (Table& table : tables) table.dim = static_cast<int64_t>(fields.Number(4));
  for (Table& table : tables) table.rows = static_cast<int64_t>(fields.Number(8));
  for (Table& table : tables) table.name = fields.Name(kNameBytes);
  for (Table& table : tables) table.optimizer = fields.Name(kShortNameBytes);
  for (const Table& table : tables) {
    if (table.name.empty() || table.name != Sok2Name(table.name) || table.rows < 0 || table.dim < 1 ||
        ItemBytes(table.key_type) == 0 || table.key_type[1] == 'f' || table.value_type.empty()) {
      return DataLoss("'", path, "' is damaged where it describes the table '", table.name, "'");
    }
  }
  return tables;
}

// What is at the beginning of a file of keys, values or a slot.
struct Head {
  std::string table;  // empty in files of newer versions, like `slot`
  uint64_t kind = 0;
  std::string slot;
  std::string type;
  int64_t bytes = 0;  // of the file behind the head
};

StatusOr<Head> ReadHead(Files& files, const std::string& path) {
  SOK_ASSIGN_OR_RETURN(const auto file, files.Open(path));
  const int64_t size = file->size();
  if (size < kHeadBytes) return DataLoss("'", path, "' has ", size, " bytes");
  std::string bytes(kHeadBytes, '\0');
  SOK_RETURN_IF_ERROR(file->ReadAt(0, bytes.data(), kHeadBytes));
  Fields fields(bytes);
  Head head;
  head.table = fields.Name(kNameBytes);
  head.kind = fields.Number(4);
  head.slot = fields.Name(kShortNameBytes);
  head.type = TypeOf(fields.Number(4));
  head.bytes = size - kHeadBytes;
  if (head.type.empty()) return DataLoss("'", path, "' has numbers of an unknown type");
  return head;
}

// The tables of a folder without a description, which newer versions do not write.
StatusOr<std::vector<Table>> DescribeFiles(Files& files, const std::string& folder,
                                           const std::vector<std::string>& names) {
  std::vector<Table> tables;
  for (const std::string& name : names) {
    const size_t end = name.rfind("-key");
    if (end == std::string::npos || end == 0 || end + 4 != name.size()) continue;
    Table table;
    table.name = name.substr(0, end);
    const std::string begin = StrCat(folder, "/", table.name);
    SOK_ASSIGN_OR_RETURN(const auto keys, ReadHead(files, begin + "-key"));
    SOK_ASSIGN_OR_RETURN(const auto values, ReadHead(files, begin + "-weight"));
    table.key_type = keys.type;
    table.value_type = values.type;
    table.rows = keys.bytes / ItemBytes(table.key_type);
    const int64_t row_bytes = std::max<int64_t>(table.rows, 1) * ItemBytes(table.value_type);
    table.dim = std::max<int64_t>(values.bytes / row_bytes, 1);
    for (const std::string& other : names) {
      const size_t dash = other.find('-', end + 1);
      if (other.compare(0, end + 1, table.name + "-") == 0 && dash != std::string::npos)
        table.optimizer = other.substr(end + 1, dash - end - 1);
    }
    if (table.key_type[1] == 'f') return DataLoss("'", begin, "-key' has keys of ", table.key_type);
    tables.push_back(std::move(table));
  }
  if (tables.empty()) return NotFound("'", folder, "' has no tables of SOK 2.x");
  return tables;
}

// Adds the files of tables to the index.
class FolderReader {
 public:
  FolderReader(Files& files, const std::string& folder) : files_(files), folder_(folder) {}

  Status Add(const Table& table, const std::vector<std::string>& names) {
    SOK_RETURN_IF_ERROR(AddFile(table, "key", kKeys, {table.key_type, {table.rows}}));
    SOK_RETURN_IF_ERROR(AddFile(table, "weight", kValues, {table.value_type, {table.rows, table.dim}}));
    const std::string begin = StrCat(table.name, "-");
    for (const std::string& name : names) {
      if (name.compare(0, begin.size(), begin) != 0) continue;
      const std::string rest = name.substr(begin.size());
      if (rest == "key" || rest == "weight") continue;
      SOK_RETURN_IF_ERROR(AddFile(table, rest, kSlot, {table.value_type, {table.rows, table.dim}}));
    }
    return OkStatus();
  }

  Sok2Folder Take() {
    result_.index.shards = static_cast<int>(result_.files.size());
    return std::move(result_);
  }

 private:
  Status AddFile(const Table& table, const std::string& rest, Kind kind, const ArrayType& type) {
    const std::string name = StrCat(table.name, "-", rest);
    const std::string path = StrCat(folder_, "/", name);
    SOK_ASSIGN_OR_RETURN(const auto read, ReadHead(files_, path));
    const Head& head = read;
    const std::string slot = kind == kSlot ? rest.substr(rest.find('-') + 1) : "";
    const bool is_of_table = head.table.empty() || head.table == table.name;
    const bool is_of_slot = head.slot.empty() || head.slot == slot;
    const bool is_of_optimizer = kind != kSlot || rest == StrCat(table.optimizer, "-", slot);
    if (!is_of_table || head.kind != kind || !is_of_slot || !is_of_optimizer) {
      return DataLoss("'", path, "' says that it is something else: kind ", head.kind, ", '", head.slot,
                      "' of the table '", head.table, "'");
    }
    const ArrayType found{head.type, type.shape};
    if (kind != kSlot && found.dtype != type.dtype) {
      return DataLoss("'", path, "' has ", Describe(found), ", but '", kSok2Description, "' says ",
                      Describe(type));
    }
    TensorPlace place;
    place.dtype = found.dtype;
    place.shape = found.shape;
    place.shard = static_cast<int>(result_.files.size());
    place.offset = kHeadBytes;
    place.bytes = DataBytes(found);
    if (place.bytes != head.bytes) {
      return DataLoss("'", path, "' has ", kHeadBytes + head.bytes, " bytes, which are not a head of ",
                      kHeadBytes, " and ", Describe(found));
    }
    if (!result_.index.entries.emplace(name, EncodeTensorPlace(place)).second) {
      return DataLoss("'", folder_, "/", kSok2Description, "' has the table '", table.name, "' twice");
    }
    result_.files.push_back(path);
    return OkStatus();
  }

  Files& files_;
  const std::string folder_;
  Sok2Folder result_;
};

}  // namespace

bool IsSok2Description(const std::string& path) {
  const size_t slash = path.rfind('/');
  return path.substr(slash == std::string::npos ? 0 : slash + 1) == kSok2Description;
}

std::string Sok2Name(const std::string& table) {
  std::string name = table;
  for (char& c : name) {
    if (std::ispunct(static_cast<unsigned char>(c)) != 0) c = '_';
  }
  return name;
}

StatusOr<Sok2Folder> ReadSok2Folder(Files& files, const std::string& description) {
  const std::string folder = FolderOf(description);
  std::vector<std::string> names;
  SOK_RETURN_IF_ERROR(files.List(folder, &names));
  const bool is_described = std::count(names.begin(), names.end(), kSok2Description) != 0;
  SOK_ASSIGN_OR_RETURN(const auto tables, is_described ? ReadDescription(files, description)
                                                       : DescribeFiles(files, folder, names));
  FolderReader reader(files, folder);
  for (const Table& table : tables) SOK_RETURN_IF_ERROR(reader.Add(table, names));
  return reader.Take();
}

}  // namespace sok

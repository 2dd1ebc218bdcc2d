#include "cc/checkpoint/checkpoint_path.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "cc/base/hash.h"
#include "cc/checkpoint/file_error.h"
#include "cc/checkpoint/json_reader.h"
#include "cc/checkpoint/manifest.h"

namespace sok {
namespace {

namespace fs = std::filesystem;

constexpr char kOwnSuffix[] = ".sok";
// What a name of a file has between the prefix and the table. A quoted name does not have it, so its last
// occurrence in a file's name is where the prefix ends.
constexpr char kBeforeTable[] = ".sok-";
// The longest name of a file that file systems take, and the part of it for what follows a table's name.
constexpr size_t kMaxFileName = 255;
constexpr size_t kMaxTail = 80;
constexpr size_t kIdDigits = 16;
constexpr char kHex[] = "0123456789abcdef";

bool IsId(const std::string& text) {
  return text.size() == kIdDigits && text.find_first_not_of(kHex) == std::string::npos;
}

std::string HexOf(uint64_t value) {
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text += kHex[value >> shift & 15];
  return text;
}

bool IsUnreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == '-' || c == '~';
}

// The path of a file beside TensorFlow's files: the table's last slash, and those in `file`, are replaced.
std::string FlatFile(const std::string& table, const std::string& file) {
  std::string path = table;
  const size_t slash = path.rfind('/');
  if (slash != std::string::npos) path[slash] = '-';
  std::string name = file;
  std::replace(name.begin(), name.end(), '/', '.');
  return path + "." + name;
}

// Whether there is a folder at the table's path, or something else that must be reported.
bool IsInFolder(Files& files, const std::string& table) {
  if (files.IsFolder(table)) return true;
  std::vector<std::string> names;
  return files.List(table, &names).code() == StatusCode::kFailedPrecondition;
}

// The length to which a table's quoted name is cut, for a prefix whose last component is `base`.
size_t LongestName(const std::string& base) {
  const size_t taken = base.size() + sizeof(kBeforeTable) + kIdDigits + kMaxTail;
  const size_t least = kIdDigits + 1;
  return taken + least > kMaxFileName ? least : std::min<size_t>(kMaxFileName - taken, 150);
}

fs::path FolderOf(const std::string& prefix) {
  const fs::path folder = fs::path(prefix).parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

}  // namespace

std::string QuotedName(const std::string& name, size_t limit) {
  std::string quoted;
  for (const char c : name) {
    if (IsUnreserved(c)) {
      quoted += c;
    } else {
      const unsigned char byte = static_cast<unsigned char>(c);
      quoted += '%';
      quoted += "0123456789ABCDEF"[byte >> 4];
      quoted += "0123456789ABCDEF"[byte & 15];
    }
  }
  for (size_t at = quoted.find(kBeforeTable); at != std::string::npos; at = quoted.find(kBeforeTable)) {
    quoted.replace(at, 1, "%2E");
  }
  if (quoted.size() <= limit) return quoted;
  const std::string hash = HexOf(Fingerprint64(name));
  return quoted.substr(0, limit - 1 - hash.size()) + "~" + hash;
}

StatusOr<SavePaths> SavePaths::Of(const std::string& prefix, const std::string& table,
                                  const std::string& id) {
  SOK_RETURN_IF_ERROR(CheckPath(prefix));
  const std::string base = fs::path(prefix).filename().string();
  if (base.empty()) return InvalidArgument("'", prefix, "' is not a prefix of a checkpoint");
  if (!IsId(id)) return InvalidArgument("'", id, "' is not an id of a checkpoint, which has 16 hex digits");
  SavePaths paths;
  paths.directory = FolderOf(prefix).string();
  paths.relative = base + kOwnSuffix + "/" + QuotedName(table, LongestName(base)) + "-" + id;
  paths.table = paths.directory + "/" + paths.relative;
  return paths;
}

std::string TableFile(Files& files, const std::string& table, const std::string& file) {
  return IsInFolder(files, table) ? table + "/" + file : FlatFile(table, file);
}

bool IsTable(Files& files, const std::string& table) {
  return files.IsFolder(table) || files.Open(FlatFile(table, kManifestName)).ok();
}

void RemoveTableFiles(Files& files, const std::string& table) {
  const std::string first = FlatFile(table, "");
  Status ignored = files.Remove(FlatFile(table, kManifestName));
  const std::string directory = FolderOf(first).string();
  std::vector<std::string> names;
  if (!files.List(directory, &names).ok()) return;
  const std::string start = fs::path(first).filename().string();
  for (const std::string& name : names) {
    if (name.compare(0, start.size(), start) == 0) ignored = files.Remove(directory + "/" + name);
  }
  static_cast<void>(ignored);
}

std::string EncodeReference(const Reference& reference) {
  nlohmann::ordered_json json;
  json["folder"] = reference.folder;
  json["manifest_crc32"] = reference.manifest_crc32;
  json["steps"] = reference.steps;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

StatusOr<Reference> ParseReference(const std::string& text, const std::string& prefix) {
  JsonReader reader(prefix);
  const nlohmann::json json = reader.Parse(text);
  Reference reference;
  reference.folder = reader.String(json, "folder");
  reference.manifest_crc32 = reader.Uint32(json, "manifest_crc32");
  reference.steps = reader.Int(json, "steps", 0);
  const Status path = CheckPath(reference.folder);
  if (!path.ok()) reader.Fail("refers to an invalid folder: ", path.message());
  if (reference.folder.empty() || reference.folder[0] == '/') {
    reader.Fail("refers to '", reference.folder, "', which is not relative to its folder");
  }
  if (!reader.ok()) {
    return DataLoss("The reference to a table's checkpoint is damaged: ", reader.status().message());
  }
  return reference;
}

StatusOr<std::string> FindCheckpoint(Files& files, const std::string& prefix, const std::string& folder) {
  SOK_RETURN_IF_ERROR(CheckPath(prefix));
  SOK_RETURN_IF_ERROR(CheckPath(folder));
  fs::path stored = folder;
  if (!stored.has_filename()) stored = stored.parent_path();
  const fs::path near =
      FolderOf(prefix) / (fs::path(prefix).filename().string() + kOwnSuffix) / stored.filename();
  const fs::path as_stored = FolderOf(prefix) / stored;
  for (const fs::path& candidate : {near, as_stored}) {
    const std::string path = AbsolutePath(candidate.string());
    if (files.IsFolder(path)) return path;
    std::vector<std::string> names;
    Status listed = files.List(path, &names);
    if (listed.code() == StatusCode::kFailedPrecondition) return listed;
    const Status opened = files.Open(FlatFile(path, kManifestName)).status();
    if (opened.ok()) return path;
    if (opened.code() != StatusCode::kNotFound) return opened;
  }
  return NotFound("There is no file '", FlatFile(AbsolutePath(near.string()), kManifestName), "', nor '",
                  FlatFile(AbsolutePath(as_stored.string()), kManifestName), "': the checkpoint '", prefix,
                  "' needs one of them, or a folder of an earlier version of the format");
}

std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(fs::path(path.empty() ? "." : path), error);
  return (error ? fs::path(path) : absolute).lexically_normal().string();
}

}  // namespace sok

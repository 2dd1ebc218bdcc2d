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

constexpr size_t kMaxName = 150;
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

fs::path FolderOf(const std::string& prefix) {
  const fs::path folder = fs::path(prefix).parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

}  // namespace

std::string QuotedName(const std::string& name) {
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
  if (quoted.size() <= kMaxName) return quoted;
  const std::string hash = HexOf(Fingerprint64(name));
  return quoted.substr(0, kMaxName - 1 - hash.size()) + "~" + hash;
}

StatusOr<SavePaths> SavePaths::Of(const std::string& prefix, const std::string& table,
                                  const std::string& id) {
  SOK_RETURN_IF_ERROR(CheckPath(prefix));
  const std::string base = fs::path(prefix).filename().string();
  if (base.empty()) return InvalidArgument("'", prefix, "' is not a prefix of a checkpoint");
  if (!IsId(id)) return InvalidArgument("'", id, "' is not an id of a checkpoint, which has 16 hex digits");
  SavePaths paths;
  paths.parent = (FolderOf(prefix) / (base + ".sok")).string();
  paths.leaf = QuotedName(table) + "-" + id;
  paths.folder = paths.parent + "/" + paths.leaf;
  paths.unfinished = paths.folder + kUnfinishedSuffix;
  paths.relative = base + ".sok/" + paths.leaf;
  return paths;
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
      FolderOf(prefix) / (fs::path(prefix).filename().string() + ".sok") / stored.filename();
  const fs::path as_stored = FolderOf(prefix) / stored;
  for (const fs::path& candidate : {near, as_stored}) {
    const std::string path = AbsolutePath(candidate.string());
    if (files.IsFolder(path)) return path;
    std::vector<std::string> names;
    Status listed = files.List(path, &names);
    if (listed.code() == StatusCode::kFailedPrecondition) return listed;
  }
  return NotFound("There is no folder '", AbsolutePath(near.string()), "', nor '",
                  AbsolutePath(as_stored.string()), "': the checkpoint '", prefix, "' needs one of them");
}

std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(fs::path(path.empty() ? "." : path), error);
  return (error ? fs::path(path) : absolute).lexically_normal().string();
}

}  // namespace sok

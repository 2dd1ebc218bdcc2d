#include "cc/base/printable.h"

#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>

namespace sok {
namespace {

struct Range {
  uint32_t first;
  uint32_t last;
};

// Unicode's control characters (Cc), line and paragraph separators (Zl, Zp) and format characters (of Cf
// those below U+10000, and the tags), surrogates, and values above U+10FFFF.
constexpr Range kHidden[] = {{0x0000, 0x001f},   {0x007f, 0x009f},      {0x00ad, 0x00ad}, {0x0600, 0x0605},
                             {0x061c, 0x061c},   {0x06dd, 0x06dd},      {0x070f, 0x070f}, {0x0890, 0x0891},
                             {0x08e2, 0x08e2},   {0x180e, 0x180e},      {0x200b, 0x200f}, {0x2028, 0x202e},
                             {0x2060, 0x206f},   {0xfeff, 0xfeff},      {0xfff9, 0xfffb}, {0xd800, 0xdfff},
                             {0xe0000, 0xe007f}, {0x110000, 0xffffffff}};

bool IsHidden(uint32_t character) {
  for (const Range& range : kHidden) {
    if (character >= range.first && character <= range.last) return true;
  }
  return false;
}

// Decodes the first character of a non-empty text. Returns its number of bytes, or 0 if the text does not
// begin with valid UTF-8.
size_t FirstCharacter(std::string_view text, uint32_t* character) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) {
    *character = byte(0);
    return 1;
  }
  const size_t bytes = byte(0) >= 0xf8   ? 0
                       : byte(0) >= 0xf0 ? 4
                       : byte(0) >= 0xe0 ? 3
                       : byte(0) >= 0xc0 ? 2
                                         : 0;
  if (bytes == 0 || bytes > text.size()) return 0;
  *character = byte(0) & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    *character = *character << 6 | (byte(i) & 0x3fu);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  return *character < kLeast[bytes] ? 0 : bytes;
}

void AppendEscaped(std::string_view bytes, std::string* result) {
  for (const char c : bytes) {
    const unsigned char byte = static_cast<unsigned char>(c);
    *result += "\\x";
    *result += "0123456789abcdef"[byte >> 4];
    *result += "0123456789abcdef"[byte & 15];
  }
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    uint32_t character = 0;
    const size_t bytes = FirstCharacter(text, &character);
    const std::string_view next = text.substr(0, bytes == 0 ? 1 : bytes);
    if (bytes == 0 || IsHidden(character)) {
      AppendEscaped(next, &result);
    } else {
      result += next;
    }
    text.remove_prefix(next.size());
  }
  return result;
}

namespace {

StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return StatusCode::kNotFound;
    case EFBIG:
    case ENOSPC:
    case EDQUOT:
      return StatusCode::kResourceExhausted;
    case EEXIST:
    case EISDIR:
    case ENOTEMPTY:
    case ELOOP:
    case EACCES:
    case EPERM:
    case EROFS:
    case ENXIO:
      return StatusCode::kFailedPrecondition;
    case ENAMETOOLONG:
      return StatusCode::kInvalidArgument;
    default:
      return StatusCode::kInternal;
  }
}

}  // namespace

Status CheckPath(const std::string& path) {
  if (path.find('\0') != std::string::npos)
    return InvalidArgument("'", path, "' has a zero byte, which no path can have");
  if (path.size() < PATH_MAX) return OkStatus();
  return InvalidArgument("'", path.substr(0, 100), "...' has ", path.size(),
                         " bytes, more than a path can have");
}

Status FileError(const char* what, const std::string& path) {
  const int error = errno;
  const bool blocked = error == EEXIST || error == ENOTEMPTY;
  return Status(CodeOf(error),
                StrCat("Cannot ", what, " '", path,
                       "': ", blocked ? "something else of this name is in the way" : std::strerror(error)));
}

}  // namespace sok

#include "cc/base/file_error.h"

#include <cerrno>
#include <climits>
#include <cstring>

namespace sok {
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

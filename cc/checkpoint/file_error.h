#ifndef SOK_CC_CHECKPOINT_FILE_ERROR_H_
#define SOK_CC_CHECKPOINT_FILE_ERROR_H_

#include <string>

#include "cc/base/status.h"
#include "cc/table/table_options.h"

namespace sok {

// InvalidArgument for what the operating system would take for another path, or cannot take: a path with a
// zero byte, at which it would end, and one of PATH_MAX bytes or more.
Status CheckPath(const std::string& path);

// What the system call that has just failed left in errno, as "Cannot <what> '<path>': <reason>". NotFound
// for what is not there, ResourceExhausted for a full disk or a file too large, FailedPrecondition where
// something else is in the way or this process may not do it, else Internal.
Status FileError(const char* what, const std::string& path);

// An error with the variable's name in front, where it does not have it already.
Status Named(const TableOptions& table, const Status& status);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_FILE_ERROR_H_

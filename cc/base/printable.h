#ifndef SOK_CC_BASE_PRINTABLE_H_
#define SOK_CC_BASE_PRINTABLE_H_

#include <string>
#include <string_view>

#include "cc/base/status.h"

namespace sok {

// Makes arbitrary bytes safe to print as one line of UTF-8. Control characters, line separators, most
// invisible characters, those that change the text direction, and bytes that are not UTF-8 become "\xNN", one
// for each byte. Everything else stays as it is.
std::string Printable(std::string_view text);

// InvalidArgument for a path that the operating system would refuse or misread: one of PATH_MAX bytes or
// more, or one with a zero byte, where the system would end it.
Status CheckPath(const std::string& path);

// The error in errno, after a system call has failed, as "Cannot <what> '<path>': <reason>". NotFound for a
// missing file; ResourceExhausted for a full disk or a file that is too large; FailedPrecondition if
// something else is in the way or permission is denied; InvalidArgument for a name that is too long;
// otherwise Internal.
Status FileError(const char* what, const std::string& path);

}  // namespace sok

#endif  // SOK_CC_BASE_PRINTABLE_H_
